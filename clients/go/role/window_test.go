package role

import (
	"math/rand/v2"
	"testing"
)

func TestWindowOfTheDrawing(t *testing.T) {
	w := newWindow(4, 100, 0)
	w.sent(10)
	w.sent(80)
	w.sent(30)
	w.ack(1)
	if w.undelivered != 110 || w.isOpen() {
		t.Errorf("%d bytes undelivered, open: %t", w.undelivered, w.isOpen())
	}
	if w.ack(2); !w.isOpen() {
		t.Error("30 bytes close a window of 100")
	}
}

func TestWindowThatDoesNotSayItsSizeHasOneYield(t *testing.T) {
	w := newWindow(0, 0, 0)
	if !w.isOpen() {
		t.Error("the first yield must pass")
	}
	if w.sent(1); w.isOpen() {
		t.Error("a second one passes")
	}
}

// TestWindowEqualsItsDefinition compares with a list of all sizes ever sent.
func TestWindowEqualsItsDefinition(t *testing.T) {
	chance := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		limit, credit, first := chance.Uint32N(6), chance.Uint64N(50), chance.Uint64N(3)
		w := newWindow(limit, credit, first)
		var sizes []int
		acked := first
		for range 60 {
			if chance.IntN(2) == 0 && w.isOpen() {
				sizes = append(sizes, chance.IntN(40))
				w.sent(sizes[len(sizes)-1])
			} else {
				next := chance.Uint64N(first + uint64(len(sizes)) + 3) // also repeats, and what was never sent
				w.ack(next)
				acked = max(acked, min(next, first+uint64(len(sizes))))
			}
			undelivered := uint64(0)
			for _, size := range sizes[acked-first:] {
				undelivered += uint64(size)
			}
			count := len(sizes) - int(acked-first)
			isOpen := count == 0 || (count < max(1, int(limit)) && undelivered < credit)
			if w.undelivered != undelivered || w.isOpen() != isOpen || w.next() != first+uint64(len(sizes)) {
				t.Fatalf("window %+v; acknowledged below %d of %v from %d", w, acked, sizes, first)
			}
		}
	}
}
