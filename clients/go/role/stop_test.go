package role

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	rolev1 "github.com/omniflow-serving/omniflow/clients/go/gen/role/v1"

	"google.golang.org/protobuf/types/known/timestamppb"
)

func TestCancelIsReportedAtOnceAndEndsTheContext(t *testing.T) {
	ended := make(chan error, 1)
	h := newTestHost(t, waiting("test.waiting", ended))
	c, _, _ := served(t, h)
	c.start(1, "test.waiting", "")
	c.begun(1)
	c.cancel(1, "changed my mind")
	c.cancel(1, "once more")
	if failure := c.failure(1); failure.reason != ReasonCallCancelled || failure.message != "changed my mind" ||
		failure.isRetryable || failure.isRefused {
		t.Errorf("it fails with %+v", failure)
	}
	if cause := <-ended; reasonIn(cause) != ReasonCallCancelled {
		t.Errorf("the cause is %v", cause)
	}
	eventually(t, "an empty host", func() bool { return h.load().GetRunning() == 0 })
	if late := c.pending(1); late != 0 {
		t.Errorf("%d results came after the last", late)
	}
}

func TestCancelWakesAYieldThatWaitsForItsWindow(t *testing.T) {
	result := make(chan error, 1)
	stuck := streaming("test.stuck", func(_ context.Context, _ *Activation, yield Yield) error {
		for {
			if err := yield(Outputs{"text": Text("x")}); err != nil {
				result <- err
				return err
			}
		}
	})
	c, _, _ := served(t, newTestHost(t, stuck))
	c.start(1, "test.stuck", "", withWindow(1))
	c.next(1)
	c.next(1)
	c.cancel(1, "")
	c.failure(1)
	if err := <-result; reasonIn(err) != ReasonCallCancelled {
		t.Errorf("yield returned %v", err)
	}
}

func TestCancelWhileItWaitsNeverRunsTheInterface(t *testing.T) {
	ended := make(chan error, 2)
	one := waiting("test.one", ended)
	one.declaration.MaxConcurrency = 1
	h := newTestHost(t, one)
	c, _, _ := served(t, h)
	c.start(1, "test.one", "")
	c.begun(1)
	c.start(2, "test.one", "")
	c.next(2)
	c.cancel(2, "")
	c.failure(2)
	eventually(t, "one that runs", func() bool { return h.load().GetRunning() == 1 && h.load().GetWaiting() == 0 })
	c.cancel(1, "")
	c.failure(1)
	eventually(t, "an empty host", func() bool { return h.load().GetRunning() == 0 })
	if len(ended) != 1 {
		t.Errorf("%d activations ran", len(ended))
	}
}

func TestCancelAfterTheEndChangesNothing(t *testing.T) {
	c, _, _ := served(t, newTestHost(t, echo))
	c.start(1, "test.echo", "a")
	c.texts(1)
	c.cancel(1, "")
	c.ack(1, 1)
	c.cancel(99, "")
	c.start(2, "test.echo", "b")
	c.texts(2)
	if late := c.pending(1); late != 0 {
		t.Errorf("%d results came after the last", late)
	}
}

func TestStoppedActivationThatCleansUpForLongGivesItsPlaceAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stubborn := streaming("test.stubborn", func(ctx context.Context, activation *Activation, yield Yield) error {
			if activation.Inputs.Text("text") == "quick" {
				return nil
			}
			if err := yield(Outputs{"text": Text("began")}); err != nil {
				return err
			}
			<-ctx.Done()
			time.Sleep(time.Minute)
			return yield(Outputs{"text": Text("nobody listens")})
		})
		stubborn.declaration.MaxConcurrency = 1
		h := newTestHost(t, stubborn)
		c, p, _ := served(t, h)
		c.start(1, "test.stubborn", "slow")
		c.begun(1)
		began := time.Now()
		c.cancel(1, "")
		c.failure(1)
		c.start(2, "test.stubborn", "quick")
		c.finish(2)
		if waited := time.Since(began); waited != h.cleanupGrace {
			t.Errorf("the next one waited for %s", waited)
		}
		time.Sleep(2 * time.Minute)
		if late := c.pending(1); late != 0 {
			t.Errorf("%d results came after the last", late)
		}
		leave(c, p)
	})
}

func TestDeadlineEndsWhatRunsAndWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 2)
		one := waiting("test.one", ended)
		one.declaration.MaxConcurrency = 1
		c, p, _ := served(t, newTestHost(t, one))
		deadline := timestamppb.New(time.Now().Add(500 * time.Millisecond))
		for _, handle := range []uint64{1, 2} {
			c.start(handle, "test.one", "", func(start *rolev1.StartActivation) { start.Deadline = deadline })
		}
		began := time.Now()
		for _, handle := range []uint64{1, 2} {
			if failure := c.failure(handle); failure.reason != ReasonDeadlineExceeded || failure.isRefused {
				t.Errorf("handle %d fails with %+v", handle, failure)
			}
		}
		if waited := time.Since(began); waited != 500*time.Millisecond {
			t.Errorf("after %s", waited)
		}
		if cause := <-ended; reasonIn(cause) != ReasonDeadlineExceeded {
			t.Errorf("the cause is %v", cause)
		}
		leave(c, p)
	})
}

func TestDeadlineIsReportedAtOnceAlsoWhenTheInterfaceGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deaf := streaming("test.deaf", func(context.Context, *Activation, Yield) error {
			time.Sleep(time.Minute)
			return nil
		})
		c, p, _ := served(t, newTestHost(t, deaf))
		began := time.Now()
		c.start(1, "test.deaf", "", func(start *rolev1.StartActivation) {
			start.Deadline = timestamppb.New(time.Now().Add(time.Second))
		})
		if failure := c.failure(1); failure.reason != ReasonDeadlineExceeded || time.Since(began) != time.Second {
			t.Errorf("after %s it fails with %+v", time.Since(began), failure)
		}
		time.Sleep(time.Minute)
		leave(c, p)
	})
}

func TestErrorOfARunWhoseContextHasEndedIsItsCause(t *testing.T) {
	start := startCommand(1, "test.echo", "a").GetStart()
	e, failure := newExecution(start, &echo.declaration, sink{})
	if failure != nil {
		t.Fatal(failure)
	}
	cause := &Error{Reason: ReasonDeadlineExceeded}
	e.cancel(cause)
	if told := e.failureOf(e.ctx.Err()); told != cause {
		t.Errorf("the caller is told %v", told)
	}
}

func TestNothingComesAfterTheLastResult(t *testing.T) {
	endless := streaming("test.endless", func(_ context.Context, _ *Activation, yield Yield) error {
		for {
			if err := yield(Outputs{"text": Text("x")}); err != nil {
				return err
			}
		}
	})
	c, _, _ := served(t, newTestHost(t, endless))
	for handle := uint64(1); handle <= 100; handle++ {
		c.start(handle, "test.endless", "", withWindow(500))
		c.begun(handle)
		c.cancel(handle, "")
		c.failure(handle)
	}
	for handle := uint64(1); handle <= 100; handle++ {
		if late := c.pending(handle); late != 0 {
			t.Errorf("%d results of handle %d came after the last", late, handle)
		}
	}
}

func TestActivationThatIsCancelledBeforeItsLinkKnowsItIsForgotten(t *testing.T) {
	h := newTestHost(t, echo)
	l := newLink(h, time.Hour)
	e, failure := h.admit(
		startCommand(1, "test.echo", "a").GetStart(), sink{handle: 1, out: l.pump, onEnd: func() { l.forget(1) }},
	)
	if failure != nil {
		t.Fatal(failure)
	}
	h.cancelCall("call", "")
	l.remember(1, e)
	h.launch(e)
	if l.find(1) != nil {
		t.Error("its handle is in use for ever")
	}
	if load := h.load(); load.GetRunning()+load.GetWaiting() != 0 {
		t.Errorf("the load is %v", load)
	}
}

func TestEndOfTheStreamCancelsWhatItStarted(t *testing.T) {
	for name, end := range map[string]func(*pipe){
		"half close": func(p *pipe) { _ = p.CloseSend() },
		"broken":     func(p *pipe) { close(p.gone) },
	} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan error, 1)
			h := newTestHost(t, waiting("test.waiting", ended))
			p, result := newPipe(), make(chan error, 1)
			go func() { result <- newService(h, testReplica(), time.Hour).serve(p) }()
			c, _ := dialled(t, p, &rolev1.ControlHello{ReplicaIncarnationId: "life-1"})
			c.start(1, "test.waiting", "")
			c.begun(1)
			end(p)
			if cause := <-ended; reasonIn(cause) != ReasonCallCancelled {
				t.Errorf("the cause is %v", cause)
			}
			if err := <-result; name == "half close" && err != nil {
				t.Errorf("the stream ended with %v", err)
			}
			if name == "half close" {
				c.failure(1) // what was queued is still written
			}
		})
	}
}
