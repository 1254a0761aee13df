package role

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	rolev1 "github.com/omniflow-serving/omniflow/clients/go/gen/role/v1"
)

func TestNewerOwnerOfASessionEndsWhatTheOlderHasStarted(t *testing.T) {
	ended := make(chan error, 4)
	one := waiting("test.one", ended)
	one.declaration.MaxConcurrency = 1
	h := newTestHost(t, one, waiting("test.waiting", ended), echo)
	old, _, _ := served(t, h)
	old.start(1, "test.one", "", ofSession("s", 5))
	old.begun(1)
	old.start(2, "test.one", "", ofSession("s", 5)) // it waits
	old.next(2)
	old.start(3, "test.waiting", "", ofSession("other", 5))
	old.begun(3)
	old.start(4, "test.waiting", "", ofSession("s", 5), func(start *rolev1.StartActivation) { start.Tenant = "another" })
	old.begun(4)
	owner, _, _ := served(t, h)
	owner.start(1, "test.echo", "mine", ofSession("s", 6))
	if texts := owner.texts(1); !slices.Equal(texts, []string{"mine"}) {
		t.Errorf("yields: %v", texts)
	}
	for _, handle := range []uint64{1, 2} {
		failure := old.failure(handle)
		if failure.reason != ReasonStaleOwner || failure.isRetryable || failure.isRefused {
			t.Errorf("handle %d fails with %+v", handle, failure)
		}
	}
	if cause := <-ended; reasonIn(cause) != ReasonStaleOwner {
		t.Errorf("the cause is %v", cause)
	}
	eventually(t, "that the others alone run", func() bool {
		return h.load().GetRunning() == 2 && h.load().GetWaiting() == 0
	})
	if of := old.pending(3) + old.pending(4); of != 0 || len(ended) != 0 {
		t.Errorf("other sessions have %d results, and %d have ended", of, len(ended))
	}
	old.start(5, "test.echo", "late", ofSession("s", 5))
	if failure := old.failure(5); failure.reason != ReasonStaleOwner || !failure.isRefused {
		t.Errorf("it fails with %+v", failure)
	}
}

func TestOwnerWithTheSameFenceEndsNothing(t *testing.T) {
	ended := make(chan error, 1)
	c, _, _ := served(t, newTestHost(t, waiting("test.waiting", ended), echo))
	c.start(1, "test.waiting", "", ofSession("s", 5))
	c.begun(1)
	c.start(2, "test.echo", "a", ofSession("s", 5))
	c.texts(2)
	c.start(3, "test.echo", "a") // without a session
	c.texts(3)
	if late := c.pending(1); late != 0 || len(ended) != 0 {
		t.Errorf("it has %d results", late)
	}
}

func TestTenantWithoutANameIsTheDefaultOne(t *testing.T) {
	ended := make(chan error, 1)
	c, _, _ := served(t, newTestHost(t, waiting("test.waiting", ended), echo))
	c.start(1, "test.waiting", "", ofSession("s", 1))
	c.begun(1)
	c.start(2, "test.echo", "a", ofSession("s", 2), func(start *rolev1.StartActivation) { start.Tenant = "default" })
	c.texts(2)
	if failure := c.failure(1); failure.reason != ReasonStaleOwner {
		t.Errorf("it fails with %+v", failure)
	}
}

func TestNewerOwnerTakesThePlacesOfTheOlder(t *testing.T) {
	h := newTestHost(t, echo)
	h.maxActivations = 1
	link := newLink(h, time.Hour)
	admit := func(handle, fence uint64) (*execution, *Error) {
		start := startCommand(handle, "test.echo", "a", ofSession("s", fence)).GetStart()
		return h.admit(start, sink{handle: handle, out: link.pump, onEnd: func() {}})
	}
	old, failure := admit(1, 1)
	if failure != nil {
		t.Fatal(failure)
	}
	if _, failure := admit(2, 2); failure != nil { // the old one has not begun, and leaves at once
		t.Errorf("it is refused: %v", failure)
	}
	if cause := context.Cause(old.ctx); reasonIn(cause) != ReasonStaleOwner {
		t.Errorf("the cause is %v", cause)
	}
}

func TestNewerOwnerThatIsRefusedEndsTheOlderOnesAllTheSame(t *testing.T) {
	ended := make(chan error, 1)
	h := newTestHost(t, waiting("test.waiting", ended))
	h.maxActivations = 1
	c, _, _ := served(t, h)
	c.start(1, "test.waiting", "", ofSession("s", 1))
	c.begun(1)
	c.start(2, "test.waiting", "", ofSession("s", 2)) // the old one runs, and its place is not free yet
	if failure := c.failure(1); failure.reason != ReasonStaleOwner {
		t.Errorf("it fails with %+v", failure)
	}
	if failure := c.failure(2); failure.reason != ReasonTooManyCalls || !failure.isRefused {
		t.Errorf("the newer one fails with %+v", failure)
	}
	<-ended
}

func TestWorkOfANewerOwnerWaitsForTheCleanupOfTheOlder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ordered := func(ordinal uint64) func(*rolev1.StartActivation) {
			return func(start *rolev1.StartActivation) { start.SessionOrdinal = ordinal }
		}
		cleans := streaming("test.cleans", func(ctx context.Context, activation *Activation, yield Yield) error {
			if err := yield(Outputs{"text": Text("began")}); err != nil || activation.Inputs.Text("text") == "quick" {
				return err
			}
			<-ctx.Done()
			time.Sleep(300 * time.Millisecond)
			return ctx.Err()
		})
		c, p, _ := served(t, newTestHost(t, cleans))
		c.start(1, "test.cleans", "", ofSession("s", 1), ordered(1))
		c.begun(1)
		began := time.Now()
		c.start(2, "test.cleans", "quick", ofSession("s", 2), ordered(2))
		if failure := c.failure(1); failure.reason != ReasonStaleOwner || time.Since(began) != 0 {
			t.Errorf("after %s it fails with %+v", time.Since(began), failure)
		}
		c.texts(2)
		if waited := time.Since(began); waited != 300*time.Millisecond {
			t.Errorf("it waited for %s", waited)
		}
		leave(c, p)
	})
}
