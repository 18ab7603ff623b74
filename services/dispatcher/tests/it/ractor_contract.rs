//! What the dispatcher relies on in ractor: should a release change it, this fails first.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::mpsc;

/// Says when it is dropped.
struct Noted(&'static str, Arc<Mutex<Vec<&'static str>>>);

impl Drop for Noted {
    fn drop(&mut self) {
        self.1.lock().unwrap().push(self.0);
    }
}

enum Child {
    Panic,
    Fail,
    Block,
    Carry(#[allow(dead_code, reason = "only dropped")] Noted),
}

struct ChildActor(Arc<Mutex<Vec<&'static str>>>);

impl Actor for ChildActor {
    type Msg = Child;
    type State = Noted;
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Child>, (): ()) -> Result<Noted, ActorProcessingErr> {
        self.0.lock().unwrap().push("pre_start");
        Ok(Noted("state dropped", Arc::clone(&self.0)))
    }

    async fn post_stop(&self, _: ActorRef<Child>, _: &mut Noted) -> Result<(), ActorProcessingErr> {
        self.0.lock().unwrap().push("post_stop");
        Ok(())
    }

    async fn handle(
        &self,
        _: ActorRef<Child>,
        message: Child,
        _: &mut Noted,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Child::Panic => panic!("as asked"),
            Child::Fail => Err("as asked".into()),
            Child::Block => {
                tokio::time::sleep(Duration::from_secs(3_600)).await;
                Ok(())
            }
            Child::Carry(_) => Ok(()),
        }
    }
}

/// What the parent saw of its child.
#[derive(Debug, PartialEq)]
enum Seen {
    Started,
    Failed(String),
    Terminated(Option<String>),
}

struct Parent(mpsc::UnboundedSender<Seen>);

impl Actor for Parent {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<()>,
        event: SupervisionEvent,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        let seen = match event {
            SupervisionEvent::ActorStarted(_) => Seen::Started,
            SupervisionEvent::ActorFailed(_, why) => Seen::Failed(why.to_string()),
            SupervisionEvent::ActorTerminated(_, _, why) => Seen::Terminated(why),
            SupervisionEvent::ProcessGroupChanged(_) => return Ok(()),
        };
        let _ = self.0.send(seen);
        Ok(())
    }
}

struct Family {
    parent: ActorRef<()>,
    child: ActorRef<Child>,
    child_task: tokio::task::JoinHandle<()>,
    seen: mpsc::UnboundedReceiver<Seen>,
    notes: Arc<Mutex<Vec<&'static str>>>,
}

impl Family {
    async fn start() -> Self {
        let (told, seen) = mpsc::unbounded_channel();
        let (parent, _) = Actor::spawn(None, Parent(told), ()).await.unwrap();
        let notes = Arc::new(Mutex::new(Vec::new()));
        let actor = ChildActor(Arc::clone(&notes));
        let (child, child_task) = Actor::spawn_linked(None, actor, (), parent.get_cell())
            .await
            .unwrap();
        assert_eq!(
            *notes.lock().unwrap(),
            ["pre_start"],
            "inline, before the spawn returns"
        );
        let mut family = Self {
            parent,
            child,
            child_task,
            seen,
            notes,
        };
        assert_eq!(family.seen().await, Seen::Started);
        family
    }

    async fn seen(&mut self) -> Seen {
        self.seen.recv().await.unwrap()
    }

    fn notes(&self) -> Vec<&'static str> {
        self.notes.lock().unwrap().clone()
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_or_an_error_fails_the_actor_without_post_stop_and_drops_its_mailbox() {
    for last in [Child::Panic, Child::Fail] {
        let mut family = Family::start().await;
        let noted = Noted("message dropped", Arc::clone(&family.notes));
        family.child.cast(last).unwrap();
        family.child.cast(Child::Carry(noted)).unwrap();
        assert!(matches!(family.seen().await, Seen::Failed(why) if why.contains("as asked")));
        family.child_task.await.unwrap();
        let mut notes = family.notes.lock().unwrap().clone();
        notes.sort_unstable();
        assert_eq!(notes, ["message dropped", "pre_start", "state dropped"]);
        assert!(
            family.child.cast(Child::Panic).is_err(),
            "a dead mailbox refuses"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_goes_before_what_is_in_the_mailbox_and_runs_post_stop() {
    let mut family = Family::start().await;
    let noted = Noted("message dropped", Arc::clone(&family.notes));
    family.child.stop(None);
    let _ = family.child.cast(Child::Carry(noted));
    assert_eq!(family.seen().await, Seen::Terminated(None));
    family.child_task.await.unwrap();
    let notes = family.notes.lock().unwrap().clone();
    assert!(
        notes.contains(&"post_stop") && notes.contains(&"message dropped"),
        "{notes:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_killed_child_is_terminated_and_not_failed() {
    let mut family = Family::start().await;
    family.child.kill();
    assert_eq!(
        family.seen().await,
        Seen::Terminated(Some("killed".to_owned()))
    );
    assert!(!family.notes().contains(&"post_stop"));
}

#[tokio::test(start_paused = true)]
async fn a_stopping_parent_kills_its_children_without_post_stop() {
    let family = Family::start().await;
    family.child.cast(Child::Block).unwrap();
    family.parent.stop(None);
    family.child_task.await.unwrap();
    let notes = family.notes.lock().unwrap().clone();
    assert!(!notes.contains(&"post_stop"), "{notes:?}");
    assert!(notes.contains(&"state dropped"), "{notes:?}");
}
