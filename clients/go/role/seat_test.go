package role

import (
	"slices"
	"testing"
)

func seatWith(places int, names ...string) (*seat, map[string]*execution) {
	declaration := echo.declaration
	declaration.MaxConcurrency = places
	s := newSeat(made{declaration: declaration})
	all := make(map[string]*execution)
	for _, name := range names {
		e := &execution{activation: &Activation{CallID: name}}
		if name[0] == 's' { // such as s2: ordinal 2 of the session s
			e.key, e.ordinal = orderKey{session: "s"}, uint64(name[1]-'0')
		}
		all[name] = e
		s.waiting = append(s.waiting, e)
	}
	return s, all
}

func taken(s *seat) []string {
	var names []string
	for e := s.takeNext(); e != nil; e = s.takeNext() {
		names = append(names, e.activation.CallID)
	}
	return names
}

func TestSeatTakesInOrderUpToItsPlaces(t *testing.T) {
	s, all := seatWith(2, "a", "b", "c")
	if first := taken(s); !slices.Equal(first, []string{"a", "b"}) {
		t.Fatalf("it takes %v", first)
	}
	s.leave(all["a"])
	s.leave(all["a"])
	if next := taken(s); !slices.Equal(next, []string{"c"}) {
		t.Errorf("then %v", next)
	}
}

func TestSeatWithoutALimitTakesAll(t *testing.T) {
	s, _ := seatWith(0, "a", "b", "c")
	if all := taken(s); len(all) != 3 {
		t.Errorf("it takes %v", all)
	}
}

func TestSeatRunsASessionOneAtATimeByOrdinal(t *testing.T) {
	s, all := seatWith(3, "s2", "s1", "d")
	if first := taken(s); !slices.Equal(first, []string{"s1", "d"}) {
		t.Fatalf("it takes %v", first)
	}
	s.leave(all["s1"])
	if next := taken(s); !slices.Equal(next, []string{"s2"}) {
		t.Errorf("then %v", next)
	}
}

func TestSeatOfTheDrawing(t *testing.T) {
	s, all := seatWith(2, "s1", "b", "s2", "d")
	taken(s)
	s.leave(all["b"])
	if next := taken(s); !slices.Equal(next, []string{"d"}) {
		t.Errorf("after b it takes %v", next)
	}
}

func TestSeatForgetsWhatLeavesWhileItWaits(t *testing.T) {
	s, all := seatWith(1, "a", "s1", "s2")
	taken(s)
	s.leave(all["s1"])
	s.leave(all["a"])
	if next := taken(s); !slices.Equal(next, []string{"s2"}) {
		t.Errorf("it takes %v", next)
	}
}
