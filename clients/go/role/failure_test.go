package role

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

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
			if failure.isRefused || failure.reason != c.reason || strings.Contains(fmt.Sprint(failure), "secret") {
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
