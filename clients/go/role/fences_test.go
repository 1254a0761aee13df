package role

import "testing"

func TestRecentForgetsWhatWasSetLongestAgo(t *testing.T) {
	r := newRecent[string, int](2)
	r.set("a", 1)
	r.set("b", 2)
	r.set("a", 3) // newest again
	r.set("c", 4)
	if _, isKnown := r.get("b"); isKnown {
		t.Error("b is still known")
	}
	if a, _ := r.get("a"); a != 3 {
		t.Errorf("a is %d", a)
	}
	if len(r.items) != 2 || r.order.Len() != 2 {
		t.Errorf("%d and %d are kept", len(r.items), r.order.Len())
	}
}

func TestFenceIsStaleCurrentOrNewerBesideThoseBefore(t *testing.T) {
	f := newFences()
	for _, step := range []struct {
		tenant string
		fence  uint64
		want   fenceAge
	}{
		{"a", 3, fenceCurrent}, {"a", 3, fenceCurrent}, {"a", 2, fenceStale}, {"b", 1, fenceCurrent},
		{"a", 4, fenceNewer}, {"a", 4, fenceCurrent}, {"a", 3, fenceStale}, {"c", 0, fenceCurrent}, {"c", 1, fenceNewer},
	} {
		if got := f.see(sessionKey{step.tenant, "s"}, step.fence); got != step.want {
			t.Errorf("fence %d of tenant %s is %d, not %d", step.fence, step.tenant, got, step.want)
		}
	}
}
