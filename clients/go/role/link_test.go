package role

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	rolev1 "github.com/omniflow-serving/omniflow/clients/go/gen/role/v1"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// --- what an activation gives ---------------------------------------------------------------------------------------

func TestActivationYieldsInOrderAndCompletes(t *testing.T) {
	c, _, _ := served(t, newTestHost(t, echo, letters))
	c.start(1, "test.echo", "hi")
	results := c.finish(1)
	if results[0].GetAccepted() == nil || len(results) != 3 {
		t.Errorf("results: %v", results)
	}
	c.start(2, "test.letters", "abc")
	if texts := c.texts(2); !slices.Equal(texts, []string{"a", "b", "c"}) {
		t.Errorf("yields: %v", texts)
	}
}

func TestManyActivationsShareAStream(t *testing.T) {
	c, _, _ := served(t, newTestHost(t, letters))
	var commands []*rolev1.ExecuteCommand
	for handle := range uint64(50) {
		commands = append(commands, startCommand(handle+1, "test.letters", fmt.Sprintf("%03d", handle)))
	}
	c.send(commands...)
	for handle := range uint64(50) {
		if joined := strings.Join(c.texts(handle+1), ""); joined != fmt.Sprintf("%03d", handle) {
			t.Errorf("handle %d gave %q", handle+1, joined)
		}
	}
}

func TestActivationKnowsItsCall(t *testing.T) {
	seen := make(chan *Activation, 1)
	looks := streaming("test.looks", func(_ context.Context, activation *Activation, _ Yield) error {
		activation.Usage.OutputTokens = 7
		seen <- activation
		return nil
	})
	c, _, _ := served(t, newTestHost(t, looks))
	c.start(5, "test.looks", "hi", func(start *rolev1.StartActivation) {
		start.Session, start.Priority, start.Traceparent = "s", 3, "00-1-2-01"
	})
	results := c.finish(5)
	if tokens := results[len(results)-1].GetCompleted().GetUsage().GetOutputTokens(); tokens != 7 {
		t.Errorf("usage of %d tokens", tokens)
	}
	a := <-seen
	if a.CallID != "call" || a.ID != 5 || a.Node != "node" || a.Attempt != 1 || a.Tenant != "default" ||
		a.Session != "s" || a.Priority != 3 || a.Traceparent != "00-1-2-01" {
		t.Errorf("it knows %+v", a)
	}
}

func TestAttemptThatContinuesBeginsAfterWhatWasDelivered(t *testing.T) {
	rest := streaming("test.rest", func(_ context.Context, activation *Activation, yield Yield) error {
		for _, letter := range activation.Inputs.Text("text")[len(activation.Delivered):] {
			if err := yield(Outputs{"text": Text(string(letter))}); err != nil {
				return err
			}
		}
		return nil
	})
	c, _, _ := served(t, newTestHost(t, rest))
	c.start(1, "test.rest", "abcd", func(start *rolev1.StartActivation) {
		for ordinal, text := range []string{"a", "b"} {
			start.DeliveredYields = append(start.DeliveredYields, &rolev1.ActivationYield{
				Ordinal: uint64(ordinal), Fields: map[string]*Value{"text": Text(text)},
			})
		}
	})
	results := c.finish(1)
	if ordinal := results[1].GetYield().GetOrdinal(); ordinal != 2 {
		t.Errorf("the first yield is %d", ordinal)
	}
	if count := results[len(results)-1].GetCompleted().GetYieldCount(); count != 4 {
		t.Errorf("%d yields are counted", count)
	}
}

func TestOnlyOutputThatWasDeliveredIsNotGivenAgain(t *testing.T) {
	once := echo
	once.declaration.IsStreaming = false
	c, _, _ := served(t, newTestHost(t, once))
	c.start(1, "test.echo", "a", func(start *rolev1.StartActivation) {
		start.DeliveredYields = []*rolev1.ActivationYield{{Fields: map[string]*Value{"text": Text("a")}}}
	})
	results := c.finish(1)
	if len(results) != 2 || results[1].GetCompleted().GetYieldCount() != 1 {
		t.Errorf("results: %v", results)
	}
}

// --- flow control -------------------------------------------------------------------------------------------------------

func TestYieldsStopAtTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p, _ := served(t, newTestHost(t, letters))
		c.start(1, "test.letters", "abcdefghij", withWindow(4))
		for _, step := range []struct{ ack, results uint64 }{{0, 5}, {2, 7}, {2, 7}, {3, 8}} { // with the acceptance
			c.ack(1, step.ack)
			synctest.Wait()
			if pending := c.pending(1); pending != int(step.results) {
				t.Errorf("after an acknowledgement of %d, %d results have come", step.ack, pending)
			}
		}
		c.ack(1, 7)
		if texts := c.texts(1); strings.Join(texts, "") != "abcdefghij" {
			t.Errorf("yields: %v", texts)
		}
		leave(c, p)
	})
}

func TestYieldsStopAtTheByteCredit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p, _ := served(t, newTestHost(t, letters))
		c.start(1, "test.letters", "abcdef", func(start *rolev1.StartActivation) { start.ByteCredit = 1 })
		synctest.Wait()
		if pending := c.pending(1); pending != 2 {
			t.Errorf("%d results have come", pending)
		}
		for next := range uint64(5) {
			c.ack(1, next+1)
			synctest.Wait()
		}
		c.texts(1)
		leave(c, p)
	})
}

func TestFullWindowOfOneActivationStopsNoOther(t *testing.T) {
	c, _, _ := served(t, newTestHost(t, letters, echo))
	c.start(1, "test.letters", "abc", withWindow(1))
	c.start(2, "test.echo", "hi")
	if texts := c.texts(2); texts[0] != "hi" {
		t.Errorf("yields: %v", texts)
	}
}

func TestGoroutinesThatYieldAtTheSameTimeTakeTurns(t *testing.T) {
	const workers, each = 8, 1_000
	crowd := streaming("test.crowd", func(_ context.Context, _ *Activation, yield Yield) error {
		ended := make(chan error, workers)
		for range workers {
			go func() {
				for range each {
					if err := yield(Outputs{"text": Text("x")}); err != nil {
						ended <- err
						return
					}
				}
				ended <- nil
			}()
		}
		var err error
		for range workers {
			err = errors.Join(err, <-ended)
		}
		return err
	})
	c, _, _ := served(t, newTestHost(t, crowd))
	c.start(1, "test.crowd", "", withWindow(workers*each))
	if texts := c.texts(1); len(texts) != workers*each {
		t.Errorf("%d yields", len(texts))
	}
}

func TestAckOfAnInnerActivationOpensNoWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p, _ := served(t, newTestHost(t, letters))
		c.start(1, "test.letters", "abc", withWindow(1))
		synctest.Wait()
		c.send(&rolev1.ExecuteCommand{Handle: 1, Command: &rolev1.ExecuteCommand_YieldAck{
			YieldAck: &rolev1.YieldAck{NextOrdinal: 1, InnerActivationId: 7},
		}})
		synctest.Wait()
		if pending := c.pending(1); pending != 2 {
			t.Errorf("%d results have come", pending)
		}
		leave(c, p)
	})
}

func TestAnswersTakeNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p, _ := served(t, newTestHost(t, echo))
		began := time.Now()
		c.start(1, "test.ecko", "refused")
		c.failure(1)
		c.start(2, "test.echo", "done")
		c.texts(2)
		if took := time.Since(began); took != 0 {
			t.Errorf("they took %s", took)
		}
		leave(c, p)
	})
}

func TestStreamIsNeverSilentForMoreThanASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p, _ := served(t, newTestHost(t, echo))
		time.Sleep(10*time.Second + time.Millisecond)
		if heartbeats := c.pending(0); heartbeats != 10 {
			t.Errorf("%d heartbeats in ten seconds", heartbeats)
		}
		leave(c, p)
	})
}

// --- the end from outside -----------------------------------------------------------------------------------------------

func TestCancelIsReportedAtOnceAndEndsTheContext(t *testing.T) {
	ended := make(chan error, 1)
	h := newTestHost(t, waiting("test.waiting", ended))
	c, _, _ := served(t, h)
	c.start(1, "test.waiting", "")
	c.begun(1)
	c.cancel(1, "changed my mind")
	c.cancel(1, "once more")
	if failure := c.failure(1); failure.reason != ReasonCallCancelled || failure.message != "changed my mind" ||
		failure.isRetryable {
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
			if failure := c.failure(handle); failure.reason != ReasonDeadlineExceeded {
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

// --- failures -----------------------------------------------------------------------------------------------------------

func TestFailureOfAnInterface(t *testing.T) {
	secret := errors.New("the secret prompt")
	for name, c := range map[string]struct {
		run    func(context.Context, *Activation, Yield) error
		reason Reason
	}{
		"error": {func(context.Context, *Activation, Yield) error { return secret }, ReasonInterfaceFailed},
		"panic": {func(context.Context, *Activation, Yield) error { panic(secret) }, ReasonInterfaceFailed},
		"exit": {func(context.Context, *Activation, Yield) error {
			runtime.Goexit()
			return nil
		}, ReasonInterfaceFailed},
		"nil error": {func(context.Context, *Activation, Yield) error { return (*Error)(nil) }, ReasonInterfaceFailed},
		"cancelled by itself": {func(context.Context, *Activation, Yield) error {
			return context.Canceled
		}, ReasonInterfaceFailed},
		"stated": {func(context.Context, *Activation, Yield) error {
			return fmt.Errorf("%w: %w", secret, &Error{Reason: ReasonInvalidMedia, Message: "no such image"})
		}, ReasonInvalidMedia},
		"elsewhere": {func(context.Context, *Activation, Yield) error {
			return &Error{Reason: ReasonPoolExhausted, Message: "no page is free", RetryAfter: time.Second}
		}, ReasonPoolExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			fails := streaming("test.fails", func(ctx context.Context, a *Activation, yield Yield) error {
				if err := yield(Outputs{"text": Text("part")}); err != nil {
					return err
				}
				return c.run(ctx, a, yield)
			})
			h := newTestHost(t, fails, echo)
			control, _, _ := served(t, h)
			control.start(1, "test.fails", "")
			failure := control.failure(1)
			if failure.reason != c.reason || strings.Contains(fmt.Sprint(failure), "secret") {
				t.Errorf("it fails with %+v", failure)
			}
			if c.reason == ReasonInterfaceFailed && failure.metadata["node"] != "node" {
				t.Errorf("the metadata is %v", failure.metadata)
			}
			if failure.isRetryable != (name == "elsewhere") {
				t.Errorf("retryable: %t", failure.isRetryable)
			}
			control.start(2, "test.echo", "still serving")
			control.texts(2)
			eventually(t, "an empty host", func() bool { return h.load().GetRunning() == 0 })
		})
	}
}

func TestYieldThatBreaksTheDeclarationFailsTheActivation(t *testing.T) {
	for name, outputs := range map[string]Outputs{
		"undeclared": {"texts": Text("a")},
		"type":       {"text": Signal()},
		"nothing":    {"text": nil},
		"no UTF-8":   {"text": Text("\xff")},
	} {
		t.Run(name, func(t *testing.T) {
			result := make(chan error, 2)
			wrong := streaming("test.wrong", func(ctx context.Context, _ *Activation, yield Yield) error {
				result <- yield(outputs)
				result <- yield(Outputs{"text": Text("goes on all the same")})
				return nil
			})
			c, _, _ := served(t, newTestHost(t, wrong))
			c.start(1, "test.wrong", "")
			results := c.finish(1)
			if len(results) != 2 || results[1].GetFailed() == nil {
				t.Errorf("results: %v", results)
			}
			for range 2 {
				if err := <-result; reasonIn(err) != ReasonInvalidOutput {
					t.Errorf("yield returned %v", err)
				}
			}
		})
	}
}

func TestSecondYieldOfAnInterfaceThatDoesNotStreamIsRefused(t *testing.T) {
	twice := letters
	twice.declaration.IsStreaming = false
	c, _, _ := served(t, newTestHost(t, twice))
	c.start(1, "test.letters", "ab")
	if failure := c.failure(1); failure.reason != ReasonInvalidOutput {
		t.Errorf("it fails with %+v", failure)
	}
}

func TestYieldOfMoreThanAMessageTakesFailsItsActivationAlone(t *testing.T) {
	large := streaming("test.large", func(_ context.Context, _ *Activation, yield Yield) error {
		number, err := JSON(strings.Repeat("x", maxYieldBytes))
		if err != nil {
			return err
		}
		return yield(Outputs{"json": number})
	})
	large.declaration.Outputs = Fields(Required("json", TypeJSON))
	c, _, _ := served(t, newTestHost(t, large, echo))
	c.start(1, "test.large", "")
	if failure := c.failure(1); failure.reason != ReasonInvalidOutput {
		t.Errorf("it fails with %+v", failure)
	}
	c.start(2, "test.echo", "still serving")
	c.texts(2)
}

// --- what is not taken in -----------------------------------------------------------------------------------------------

func TestStartThatIsNotTakenInSaysWhy(t *testing.T) {
	h := newTestHost(t, echo)
	for name, c := range map[string]struct {
		change func(*rolev1.StartActivation)
		reason Reason
	}{
		"empty":             {func(s *rolev1.StartActivation) { s.Activation, s.Facets = nil, nil }, ReasonUnknownInterface},
		"unknown interface": {func(s *rolev1.StartActivation) { s.Activation.Interface = "test.ecko" }, ReasonUnknownInterface},
		"unknown group":     {func(s *rolev1.StartActivation) { s.Facets[0].InputGroup = "" }, ReasonUnknownField},
		"no inputs":         {func(s *rolev1.StartActivation) { s.Facets[0].Fields = nil }, ReasonMissingInput},
		"segment":           {func(s *rolev1.StartActivation) { s.Segment = &rolev1.Segment{} }, ReasonUnimplemented},
		"no time": {func(s *rolev1.StartActivation) {
			s.Deadline = &timestamppb.Timestamp{Nanos: -1}
		}, ReasonInvalidField},
		"past": {func(s *rolev1.StartActivation) {
			s.Deadline = timestamppb.New(time.Now().Add(-time.Hour))
			s.Activation.Interface = "test.echo"
		}, ReasonDeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			control, _, _ := served(t, h)
			control.start(1, "test.echo", "a", c.change)
			if failure := control.failure(1); failure.reason != c.reason || failure.isRetryable {
				t.Errorf("it fails with %+v", failure)
			}
			control.start(2, "test.echo", "still serving")
			control.texts(2)
		})
	}
}

func TestUnknownInterfaceNamesThoseThatAreServed(t *testing.T) {
	c, _, _ := served(t, newTestHost(t, letters, echo))
	c.start(1, "test.ecko", "a")
	if message := c.failure(1).message; !strings.Contains(message, `"test.ecko"; it serves test.echo, test.letters`) {
		t.Errorf("the message is %q", message)
	}
}

func TestMoreThanTheReplicaTakesIsForAnother(t *testing.T) {
	ended := make(chan error, 2)
	h := newTestHost(t, waiting("test.waiting", ended))
	h.maxActivations = 2
	c, _, _ := served(t, h)
	for _, handle := range []uint64{1, 2, 3} {
		c.start(handle, "test.waiting", "")
	}
	if failure := c.failure(3); failure.reason != ReasonTooManyCalls || !failure.isRetryable || failure.retryAfter == 0 {
		t.Errorf("it fails with %+v", failure)
	}
}

func TestWorkOfASessionsEarlierOwnerIsRefused(t *testing.T) {
	c, _, _ := served(t, newTestHost(t, echo))
	c.start(1, "test.echo", "a", func(s *rolev1.StartActivation) { s.Session, s.SessionFence = "s", 2 })
	c.texts(1)
	c.start(2, "test.echo", "a", func(s *rolev1.StartActivation) { s.Session, s.SessionFence = "s", 1 })
	if failure := c.failure(2); failure.reason != ReasonStaleOwner {
		t.Errorf("it fails with %+v", failure)
	}
}

func TestCancelOfACallStopsItsActivationsAndThoseStillToCome(t *testing.T) {
	ended := make(chan error, 3)
	h := newTestHost(t, waiting("test.waiting", ended), echo)
	c, _, _ := served(t, h)
	for _, handle := range []uint64{1, 2} {
		c.start(handle, "test.waiting", "", ofCall("c"))
		c.begun(handle)
	}
	c.start(3, "test.waiting", "", ofCall("other"))
	c.begun(3)
	if count := h.cancelCall("c", "user left"); count != 2 {
		t.Errorf("%d activations were told", count)
	}
	for _, handle := range []uint64{1, 2} {
		if failure := c.failure(handle); failure.reason != ReasonCallCancelled || failure.message != "user left" {
			t.Errorf("handle %d fails with %+v", handle, failure)
		}
	}
	if count := h.cancelCall("c", ""); count != 0 {
		t.Errorf("%d activations were told twice", count)
	}
	c.start(4, "test.echo", "late", ofCall("c"))
	if results := c.finish(4); len(results) != 1 || results[0].GetFailed() == nil {
		t.Errorf("results of what was overtaken: %v", results)
	}
	if late := c.pending(3); late != 0 {
		t.Errorf("the other call has %d results", late)
	}
}

func TestCallThatHasEndedLeavesNothingRunning(t *testing.T) {
	ended := make(chan error, 1)
	h := newTestHost(t, waiting("test.waiting", ended), echo)
	c, _, _ := served(t, h)
	c.start(1, "test.waiting", "", ofCall("c"))
	c.begun(1)
	h.endCall("c")
	<-ended
	h.endCall("never seen")
	c.start(2, "test.echo", "a", ofCall("never seen"))
	c.texts(2)
}

// --- rules of the stream ------------------------------------------------------------------------------------------------

func TestStreamThatBreaksTheRulesEndsWithTheReason(t *testing.T) {
	hello := func(life string) *rolev1.ExecuteCommand {
		return &rolev1.ExecuteCommand{Command: &rolev1.ExecuteCommand_Hello{
			Hello: &rolev1.ControlHello{ReplicaIncarnationId: life},
		}}
	}
	start := func(handle uint64) *rolev1.ExecuteCommand { return startCommand(handle, "test.waiting", "") }
	for name, c := range map[string]struct {
		commands []*rolev1.ExecuteCommand
		reason   Reason
	}{
		"nothing":          {nil, ReasonProtocolViolation},
		"no hello":         {[]*rolev1.ExecuteCommand{start(1)}, ReasonProtocolViolation},
		"empty command":    {[]*rolev1.ExecuteCommand{{}}, ReasonProtocolViolation},
		"other life":       {[]*rolev1.ExecuteCommand{hello("life-0")}, ReasonStaleEpoch},
		"no life":          {[]*rolev1.ExecuteCommand{hello("")}, ReasonStaleEpoch},
		"two hellos":       {[]*rolev1.ExecuteCommand{hello("life-1"), hello("life-1")}, ReasonProtocolViolation},
		"handle 0":         {[]*rolev1.ExecuteCommand{hello("life-1"), start(0)}, ReasonProtocolViolation},
		"handle that runs": {[]*rolev1.ExecuteCommand{hello("life-1"), start(1), start(1)}, ReasonProtocolViolation},
	} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan error, 1)
			h := newTestHost(t, waiting("test.waiting", ended))
			p, result := newPipe(), make(chan error, 1)
			go func() { result <- newService(h, testReplica(), time.Hour).serve(p) }()
			if err := p.Send(&rolev1.ExecuteRequest{Commands: c.commands}); err != nil {
				t.Fatal(err)
			}
			if err := <-result; reasonIn(err) != c.reason {
				t.Errorf("it ends with %v", err)
			}
			eventually(t, "an empty host", func() bool { return h.load().GetRunning() == 0 })
		})
	}
}

func TestFramesThatAreNoneEndTheStream(t *testing.T) {
	p, result := newPipe(), make(chan error, 1)
	go func() { result <- newService(newTestHost(t, echo), testReplica(), time.Hour).serve(p) }()
	dialled(t, p, &rolev1.ControlHello{ReplicaIncarnationId: "life-1"})
	p.commands <- []byte{0xff}
	if err := <-result; reasonIn(err) != ReasonProtocolViolation {
		t.Errorf("it ends with %v", err)
	}
}

func TestPeerThatEndsBeforeItsHelloIsToldOfIt(t *testing.T) {
	p := newPipe()
	close(p.commands)
	if err := newService(newTestHost(t, echo), testReplica(), time.Hour).serve(p); reasonIn(err) != ReasonProtocolViolation {
		t.Errorf("it ends with %v", err)
	}
}

func TestCommandsBehindTheHelloAreTaken(t *testing.T) {
	p := newPipe()
	go func() { _ = newService(newTestHost(t, echo), testReplica(), time.Hour).serve(p) }()
	c := newControl(t, p)
	c.send(
		&rolev1.ExecuteCommand{Command: &rolev1.ExecuteCommand_Hello{
			Hello: &rolev1.ControlHello{ReplicaIncarnationId: "life-1"},
		}},
		startCommand(1, "test.echo", "a"),
	)
	if texts := c.texts(1); texts[0] != "a" {
		t.Errorf("yields: %v", texts)
	}
}

func TestPeerThatNeverReadsEndsItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTestHost(t, letters)
		l := newLink(h, time.Hour)
		l.pump.limitBytes = 1_000
		p, result := newPipe(), make(chan error, 1)
		p.results = make(chan *rolev1.ExecuteResponse) // nobody reads
		go func() { result <- l.serve(p, nil) }()
		start := startCommand(1, "test.letters", strings.Repeat("x", 1_000), withWindow(1_000))
		if err := p.Send(&rolev1.ExecuteRequest{Commands: []*rolev1.ExecuteCommand{start}}); err != nil {
			t.Fatal(err)
		}
		if err := <-result; reasonIn(err) != ReasonBufferFull {
			t.Errorf("it ends with %v", err)
		}
		synctest.Wait()
		if load := h.load(); load.GetRunning() != 0 {
			t.Errorf("the load is %v", load)
		}
		close(p.gone)
	})
}

// --- links ----------------------------------------------------------------------------------------------------------------

func TestLinkIsNotResumedAndSaysSo(t *testing.T) {
	_, _, _, answer := servedWith(t, newTestHost(t, echo), &rolev1.ControlHello{
		ReplicaIncarnationId: "life-1", LinkId: "link", IsResuming: true, ReceivedMessages: 7,
	})
	if answer.GetIsResumed() || answer.GetReceivedMessages() != 0 || answer.GetReplica().GetReplicaId() != "test-0" {
		t.Errorf("the hello is %v", answer)
	}
}

func TestLinkIsToldHowManyMessagesHaveBeenTakenIn(t *testing.T) {
	c, _, _, _ := servedWith(t, newTestHost(t, echo), &rolev1.ControlHello{ReplicaIncarnationId: "life-1", LinkId: "link"})
	for handle := range uint64(3) {
		c.start(handle+1, "test.echo", "a")
		c.texts(handle + 1)
	}
	if c.received != 3 {
		t.Errorf("it has been told of %d", c.received)
	}
}

func TestLinkThatGoesOnWithAnotherStreamLosesWhatRan(t *testing.T) {
	ended := make(chan error, 1)
	h := newTestHost(t, waiting("test.waiting", ended), echo)
	s := newService(h, testReplica(), time.Hour)
	hello := &rolev1.ControlHello{ReplicaIncarnationId: "life-1", LinkId: "link"}
	first, result := newPipe(), make(chan error, 1)
	go func() { result <- s.serve(first) }()
	c, _ := dialled(t, first, hello)
	c.start(1, "test.waiting", "")
	c.begun(1)
	second := newPipe()
	go func() { _ = s.serve(second) }()
	hello.IsResuming = true
	again, answer := dialled(t, second, hello)
	if answer.GetIsResumed() {
		t.Error("it claims to go on")
	}
	if err := <-result; reasonIn(err) != ReasonStaleEpoch {
		t.Errorf("the first stream ended with %v", err)
	}
	if cause := <-ended; reasonIn(cause) != ReasonCallCancelled {
		t.Errorf("the cause is %v", cause)
	}
	again.start(1, "test.echo", "a")
	again.texts(1)
}

// leave ends the stream of a test in a bubble, which waits for all its goroutines.
func leave(c *control, p *pipe) {
	_ = p.CloseSend()
	<-c.ended
}
