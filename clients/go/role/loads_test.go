package role

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// servedTwice are streams of two control planes to one host; end ends both.
func servedTwice(t *testing.T, h *host) (first, second *control, end func()) {
	t.Helper()
	first, firstPipe, _ := served(t, h)
	second, secondPipe, _ := served(t, h)
	return first, second, func() {
		leave(first, firstPipe)
		leave(second, secondPipe)
	}
}

func TestLoadIsToldToAllWhoShareTheReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := waiting("test.one", make(chan error, 2))
		one.declaration.MaxConcurrency = 1
		busy, other, end := servedTwice(t, newTestHost(t, one))
		for _, handle := range []uint64{1, 2} {
			busy.start(handle, "test.one", "")
		}
		busy.begun(1)
		time.Sleep(time.Second + time.Millisecond) // with the heartbeat: nothing was known to run
		busy.cancel(1, "")
		busy.begun(2)
		time.Sleep(loadInterval)
		busy.cancel(2, "")
		time.Sleep(loadInterval)
		for name, c := range map[string]*control{"who has started it": busy, "the other": other} {
			c.pending(0)
			if want := []load{{1, 1}, {1, 0}, {0, 0}}; !slices.Equal(c.loads, want) {
				t.Errorf("%s is told %v", name, c.loads)
			}
		}
		end()
	})
}

func TestLoadThatDoesNotChangeIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p, _ := served(t, newTestHost(t, waiting("test.waiting", make(chan error, 1))))
		c.start(1, "test.waiting", "")
		c.begun(1)
		time.Sleep(time.Minute)
		c.pending(0)
		if !slices.Equal(c.loads, []load{{1, 0}}) {
			t.Errorf("it is told %v", c.loads)
		}
		leave(c, p)
	})
}

func TestLoadIsDueSoonWhileSomethingRunsOrIsBelievedTo(t *testing.T) {
	h := newTestHost(t, waiting("test.waiting", make(chan error, 1)))
	l, other := newLink(h, time.Second), newLink(h, time.Second)
	due := func(l *link, want time.Duration, when string) {
		t.Helper()
		if got := l.reportLoad(); got != want {
			t.Errorf("%s the next is due in %s", when, got)
		}
	}
	due(l, time.Second, "while nothing runs")
	if err := l.start(1, startCommand(1, "test.waiting", "").GetStart()); err != nil {
		t.Fatal(err)
	}
	due(l, loadInterval, "while it runs")
	due(other, loadInterval, "while the other has told of it")
	due(newLink(h, loadInterval/2), loadInterval/2, "with a quick heartbeat")
	l.end()
	eventually(t, "an empty host", func() bool { return h.load().GetRunning() == 0 })
	due(other, time.Second, "when it has told of the end")
}

func TestLinkThatHasEndedTellsOfNoLoad(t *testing.T) {
	h := newTestHost(t, waiting("test.waiting", make(chan error, 1)))
	busy, l := newLink(h, time.Second), newLink(h, time.Second)
	if err := busy.start(1, startCommand(1, "test.waiting", "").GetStart()); err != nil {
		t.Fatal(err)
	}
	l.end()
	l.reportLoad()
	if frames, _ := l.pump.take(); frames != nil {
		t.Errorf("it tells %q", frames)
	}
	busy.end()
}
