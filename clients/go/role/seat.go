package role

import "slices"

// seat says who runs and who waits at one interface. It decides only, and starts nothing. First come, first served,
// except that a session's work runs one at a time, by ordinal.
//
//	two places, session-ordered work of session s:   running {a(s,1), b}   waiting [c(s,2), d]
//	b ends -> d starts: c must wait for a, which is of the same session
type seat struct {
	target      Interface
	declaration Declaration
	running     map[*execution]struct{}
	waiting     []*execution
	busy        map[orderKey]struct{}
}

func newSeat(target Interface) *seat {
	return &seat{
		target:      target,
		declaration: target.Declaration(),
		running:     make(map[*execution]struct{}),
		busy:        make(map[orderKey]struct{}),
	}
}

// takeNext moves the next execution from waiting to running; nil when there is none or no place is free.
func (s *seat) takeNext() *execution {
	if limit := s.declaration.MaxConcurrency; limit > 0 && len(s.running) >= limit {
		return nil
	}
	next := s.firstFree()
	if next == nil {
		return nil
	}
	s.removeWaiting(next)
	s.running[next] = struct{}{}
	if next.key != (orderKey{}) {
		s.busy[next.key] = struct{}{}
	}
	return next
}

// leave gives up the place, running or waiting. Repeats change nothing.
func (s *seat) leave(e *execution) {
	if _, isRunning := s.running[e]; isRunning {
		delete(s.running, e)
		delete(s.busy, e.key)
		return
	}
	s.removeWaiting(e)
}

// firstFree is the first that waits and may run; of a session the one with the lowest ordinal.
func (s *seat) firstFree() *execution {
	for _, e := range s.waiting {
		if e.key == (orderKey{}) {
			return e
		}
		if _, isBusy := s.busy[e.key]; !isBusy {
			return s.lowest(e.key)
		}
	}
	return nil
}

func (s *seat) lowest(key orderKey) *execution {
	var lowest *execution
	for _, e := range s.waiting {
		if e.key == key && (lowest == nil || e.ordinal < lowest.ordinal) {
			lowest = e
		}
	}
	return lowest
}

func (s *seat) removeWaiting(e *execution) {
	if i := slices.Index(s.waiting, e); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	}
}
