package role

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	rolev1 "github.com/omniflow-serving/omniflow/clients/go/gen/role/v1"
)

// cluster are two registries, each at a path of its own; stop ends the first.
type cluster struct {
	a, b       *registry
	atA, atB   string
	stop       func()
	registered func(*Settings) // with both, a first
}

func newCluster(t *testing.T, ttl time.Duration) cluster {
	t.Helper()
	folder := t.TempDir()
	made := cluster{a: newRegistry(ttl), b: newRegistry(ttl)}
	pathA, pathB := filepath.Join(folder, "a.sock"), filepath.Join(folder, "b.sock")
	made.atA, made.atB = unixScheme+pathA, unixScheme+pathB
	made.stop = serveRegistryAt(t, made.a, pathA)
	serveRegistryAt(t, made.b, pathB)
	made.registered = registeredAt(made.atA + ", " + made.atB)
	return made
}

// seesReports waits for a report: by then the replica is registered.
func seesReports(t *testing.T, r *registry) {
	t.Helper()
	r.sees(t, "a report", func() bool { return r.reports > 0 })
}

func TestRegistriesOfTheSettingsAreDividedByCommas(t *testing.T) {
	for given, want := range map[string][]string{
		"":                       nil,
		" , ":                    nil,
		"unix:/a.sock":           {"unix:/a.sock"},
		"unix:/a.sock, b:1 ,c:2": {"unix:/a.sock", "b:1", "c:2"},
	} {
		settings := Settings{Registry: given}
		if got := settings.registries(); !slices.Equal(got, want) {
			t.Errorf("%q are %q", given, got)
		}
	}
}

func TestLostControlPlaneIsFollowedByTheNextThatWasGiven(t *testing.T) {
	ended := make(chan error, 1)
	both := newCluster(t, time.Hour)
	r := run(t, both.registered, waiting("test.waiting", ended))
	c := r.dial(t)
	c.start(1, "test.waiting", "")
	c.begun(1)
	seesReports(t, both.a)
	if both.b.count() != 0 {
		t.Error("it has registered with both")
	}
	both.stop()
	both.b.sees(t, "its work", func() bool { return both.b.running == 1 })
	if late := c.pending(1); late != 0 {
		t.Errorf("the work has %d results", late)
	}
	c.cancel(1, "")
	c.failure(1)
	r.stop()
	<-r.ended
	both.b.sees(t, "its leave", func() bool { return slices.Equal(both.b.deregistered, []string{"lease-1"}) })
	if both.a.count() != 1 {
		t.Errorf("it has registered %d times with the first", both.a.count())
	}
}

func TestControlPlaneThatIsNotThereIsFollowedByTheNext(t *testing.T) {
	both := newCluster(t, time.Hour)
	both.stop()
	run(t, both.registered, echo)
	seesReports(t, both.b)
}

func TestTargetThatIsNoneIsFollowedByTheNext(t *testing.T) {
	both := newCluster(t, time.Hour)
	run(t, registeredAt("unix:\x7f,"+both.atB), echo)
	seesReports(t, both.b)
}

func TestReplicaGoesOnWithAControlPlaneThatItWasToldOf(t *testing.T) {
	for name, tell := range map[string]func(cluster){
		"when it registered": func(both cluster) { both.a.registries = []string{both.atA, both.atB} },
		"since": func(both cluster) {
			both.a.directives <- &rolev1.KeepAliveResponse{Registries: []string{both.atA, both.atB}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			both := newCluster(t, 150*time.Millisecond)
			tell(both)
			run(t, registeredAt(both.atA), echo)
			both.a.sees(t, "reports", func() bool { return both.a.reports > 2 }) // by then the first answer has come
			both.stop()
			seesReports(t, both.b)
			if first := both.b.registered[0]; first.GetState() != ready {
				t.Errorf("it registers as %s", first.GetState())
			}
		})
	}
}

func TestControlPlaneThatStandsStillIsLeftAfterALease(t *testing.T) {
	both := newCluster(t, 100*time.Millisecond)
	both.a.isSilent = true
	run(t, both.registered, echo)
	seesReports(t, both.b)
	if both.a.count() != 1 {
		t.Errorf("it has registered %d times with the first", both.a.count())
	}
}

func TestControlPlaneThatDoesNotAnswerARegistrationIsWaitedForForTwoSeconds(t *testing.T) {
	both := newCluster(t, time.Hour)
	run(t, both.registered, echo)
	seesReports(t, both.a)
	if given := both.a.patience; len(given) != 1 || given[0] > 2*time.Second || given[0] < time.Second {
		t.Errorf("it waits for %v", given)
	}
}

func TestLeaseThatIsGoneIsTakenAgainFromTheSameControlPlane(t *testing.T) {
	for name, directive := range map[string]*rolev1.KeepAliveResponse{
		"reregister": {Directive: &rolev1.KeepAliveResponse_Reregister{Reregister: &rolev1.ReregisterDirective{}}},
		"end":        nil,
	} {
		t.Run(name, func(t *testing.T) {
			both := newCluster(t, time.Hour)
			both.a.directives <- directive
			run(t, both.registered, echo)
			both.a.sees(t, "another registration", func() bool { return len(both.a.registered) == 2 })
			if both.b.count() != 0 {
				t.Error("it has gone to the other")
			}
		})
	}
}

func TestPauseComesAfterAllHaveFailed(t *testing.T) {
	both := newCluster(t, time.Hour)
	both.a.refusal = &Error{Reason: ReasonDraining, Message: "not now"}
	both.b.refusal = both.a.refusal
	run(t, both.registered, echo)
	both.b.sees(t, "three rounds", func() bool { return len(both.b.registered) >= 3 })
	both.a.sees(t, "three rounds", func() bool { return len(both.a.registered) >= 3 })
	inside := make([]time.Duration, 3)
	for round := range inside {
		inside[round] = both.b.at[round].Sub(both.a.at[round])
		if inside[round] < 0 {
			t.Errorf("in round %d the second came first", round)
		}
	}
	if quickest := slices.Min(inside); quickest >= firstBackoff {
		t.Errorf("it pauses for %s before the next", quickest)
	}
	for round, pause := range []time.Duration{firstBackoff, 2 * firstBackoff} {
		if paused := both.a.at[round+1].Sub(both.b.at[round]); paused < pause {
			t.Errorf("it pauses for %s after round %d", paused, round)
		}
	}
}

func TestPauseDoublesWithEachRoundAndBeginsAnewAfterARegistration(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		known         int
		hasRegistered []bool
		want          []time.Duration
	}{
		"alone": {1, make([]bool, 7), []time.Duration{
			50 * ms, 100 * ms, 200 * ms, 400 * ms, 800 * ms, 1000 * ms, 1000 * ms,
		}},
		"two":        {2, make([]bool, 6), []time.Duration{0, 50 * ms, 0, 100 * ms, 0, 200 * ms}},
		"lost":       {2, []bool{true, true, true}, []time.Duration{0, 0, 0}},
		"one lost":   {1, []bool{false, false, true, false}, []time.Duration{50 * ms, 100 * ms, 50 * ms, 100 * ms}},
		"in a round": {2, []bool{false, true, false, false, false}, []time.Duration{0, 0, 50 * ms, 0, 100 * ms}},
	} {
		var p pace
		var got []time.Duration
		for _, hasRegistered := range c.hasRegistered {
			got = append(got, p.failed(c.known, hasRegistered))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: the pauses are %v", name, got)
		}
	}
}

func TestControlPlanesThatAreNamedComeBehindTheCurrentOneAndThoseGivenStay(t *testing.T) {
	r := registration{given: []string{"a", "b"}, targets: []string{"b", "a"}}
	for _, step := range []struct{ named, want []string }{
		{nil, []string{"b", "a"}},
		{[]string{"b", "c", "d"}, []string{"b", "c", "d", "a"}},
		{[]string{"e", "c", "e"}, []string{"b", "e", "c", "a"}}, // d is gone
		{[]string{"a"}, []string{"b", "a"}},
	} {
		if r.learn(step.named); !slices.Equal(r.targets, step.want) {
			t.Errorf("after %q they are %q", step.named, r.targets)
		}
	}
	if !slices.Equal(r.given, []string{"a", "b"}) {
		t.Errorf("given are %q", r.given)
	}
}
