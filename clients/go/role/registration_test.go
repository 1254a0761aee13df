package role

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	rolev1 "github.com/omniflow-serving/omniflow/clients/go/gen/role/v1"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	ready    = rolev1.ReplicaState_REPLICA_STATE_READY
	draining = rolev1.ReplicaState_REPLICA_STATE_DRAINING
)

// registry keeps what replicas say, and answers as it is told.
type registry struct {
	rolev1.UnimplementedRoleRegistryServiceServer
	ttl        time.Duration
	directives chan *rolev1.KeepAliveResponse

	mu           sync.Mutex
	registered   []*rolev1.Replica
	states       []rolev1.ReplicaState // without repeats in a row
	running      uint32                // of the last report
	reports      int
	deregistered []string
	patience     []time.Duration // how long the replica waits for the answer of each registration
	at           []time.Time     // when each came
	refusal      error
	isSilent     bool
	registries   []string // named in answers to registrations
}

func (r *registry) RegisterReplica(
	ctx context.Context, request *rolev1.RegisterReplicaRequest,
) (*rolev1.RegisterReplicaResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.registered = append(r.registered, request.GetReplica())
	r.at = append(r.at, time.Now())
	if deadline, hasDeadline := ctx.Deadline(); hasDeadline {
		r.patience = append(r.patience, time.Until(deadline))
	}
	if r.refusal != nil {
		return nil, r.refusal
	}
	lease := "lease-" + string(rune('0'+len(r.registered)))
	return &rolev1.RegisterReplicaResponse{
		LeaseId: lease, LeaseTtl: durationpb.New(r.ttl), Registries: r.registries,
	}, nil
}

func (r *registry) KeepAlive(
	stream grpc.BidiStreamingServer[rolev1.KeepAliveRequest, rolev1.KeepAliveResponse],
) error {
	for {
		report, err := stream.Recv()
		if err != nil {
			return nil
		}
		if r.heard(report) {
			continue
		}
		answer := &rolev1.KeepAliveResponse{}
		select {
		case answer = <-r.directives:
		default:
		}
		if answer == nil { // the directive to end the stream in order
			return nil
		}
		if err := stream.Send(answer); err != nil {
			return nil
		}
	}
}

// heard is true when the registry does not answer.
func (r *registry) heard(report *rolev1.KeepAliveRequest) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reports++
	r.running = report.GetLoad().GetRunning()
	if len(r.states) == 0 || r.states[len(r.states)-1] != report.GetState() {
		r.states = append(r.states, report.GetState())
	}
	return r.isSilent
}

func (r *registry) DeregisterReplica(
	_ context.Context, request *rolev1.DeregisterReplicaRequest,
) (*rolev1.DeregisterReplicaResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deregistered = append(r.deregistered, request.GetLeaseId())
	return &rolev1.DeregisterReplicaResponse{}, nil
}

// sees waits for what the registry has been told.
func (r *registry) sees(t *testing.T, what string, condition func() bool) {
	t.Helper()
	eventually(t, what, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return condition()
	})
}

// count is how many registrations it has seen.
func (r *registry) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.registered)
}

// serveRegistry serves it until the end of the test.
func serveRegistry(t *testing.T, r *registry) (target string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "registry.sock")
	serveRegistryAt(t, r, path)
	return unixScheme + path
}

// serveRegistryAt serves it until stop is called, or the end of the test.
func serveRegistryAt(t *testing.T, r *registry, path string) (stop func()) {
	t.Helper()
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	rolev1.RegisterRoleRegistryServiceServer(server, r)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return server.Stop
}

func newRegistry(ttl time.Duration) *registry {
	return &registry{ttl: ttl, directives: make(chan *rolev1.KeepAliveResponse, 1)}
}

func registeredAt(target string) func(*Settings) {
	return func(settings *Settings) { settings.Registry = target }
}

func TestReplicaRegistersSaysAtOnceThatItDrainsAndLeaves(t *testing.T) {
	// The lease is so long that only the change itself can bring the news in time.
	registry, ended := newRegistry(time.Hour), make(chan error, 1)
	r := run(t, registeredAt(serveRegistry(t, registry)), waiting("test.waiting", ended))
	c := r.dial(t)
	c.start(1, "test.waiting", "")
	c.begun(1)
	registry.sees(t, "a report", func() bool { return registry.reports > 0 })
	r.stop()
	registry.sees(t, "the drain", func() bool {
		return slices.Equal(registry.states, []rolev1.ReplicaState{ready, draining})
	})
	c.cancel(1, "")
	if err := <-r.ended; err != nil {
		t.Error(err)
	}
	registry.sees(t, "its leave", func() bool { return slices.Equal(registry.deregistered, []string{"lease-1"}) })
	if first := registry.registered[0]; first.GetState() != ready || first.GetEndpoint() != r.Replica().GetEndpoint() ||
		len(registry.registered) != 1 {
		t.Errorf("registered: %v", registry.registered)
	}
}

func TestKeepAliveReportsTheLoadAllTheTime(t *testing.T) {
	registry, ended := newRegistry(150*time.Millisecond), make(chan error, 1)
	r := run(t, registeredAt(serveRegistry(t, registry)), waiting("test.waiting", ended))
	c := r.dial(t)
	c.start(1, "test.waiting", "")
	registry.sees(t, "the load", func() bool { return registry.running == 1 })
	seen := registry.reports
	registry.sees(t, "more reports", func() bool { return registry.reports > seen+3 })
	registry.sees(t, "one registration", func() bool { return len(registry.registered) == 1 })
}

func TestDirectiveToDrainLetsWorkEnd(t *testing.T) {
	registry, ended := newRegistry(150*time.Millisecond), make(chan error, 1)
	r := run(t, registeredAt(serveRegistry(t, registry)), waiting("test.waiting", ended))
	c := r.dial(t)
	c.start(1, "test.waiting", "")
	c.begun(1)
	drain := &rolev1.DrainDirective{Grace: durationpb.New(time.Hour)}
	registry.directives <- &rolev1.KeepAliveResponse{Directive: &rolev1.KeepAliveResponse_Drain{Drain: drain}}
	registry.sees(t, "the drain", func() bool { return slices.Contains(registry.states, draining) })
	registry.sees(t, "no leave", func() bool { return len(registry.deregistered) == 0 })
	c.cancel(1, "")
	c.failure(1)
	<-r.ended
	registry.sees(t, "its leave", func() bool { return len(registry.deregistered) == 1 })
}

func TestDirectiveToDrainWithoutATimeUsesThatOfTheReplica(t *testing.T) {
	registry := newRegistry(time.Hour)
	r := run(t, registeredAt(serveRegistry(t, registry)), echo)
	r.drainAsked(nil)
	<-r.ended
	if r.drainGrace != NewSettings("", "").DrainGrace {
		t.Errorf("the grace is %s", r.drainGrace)
	}
}

func TestLostLeaseIsTakenAgainWhileWorkGoesOn(t *testing.T) {
	registry, ended := newRegistry(150*time.Millisecond), make(chan error, 1)
	r := run(t, registeredAt(serveRegistry(t, registry)), waiting("test.waiting", ended))
	c := r.dial(t)
	c.start(1, "test.waiting", "")
	c.begun(1)
	registry.directives <- &rolev1.KeepAliveResponse{
		Directive: &rolev1.KeepAliveResponse_Reregister{Reregister: &rolev1.ReregisterDirective{}},
	}
	registry.sees(t, "another registration", func() bool { return len(registry.registered) == 2 })
	if first, second := registry.registered[0], registry.registered[1]; first.GetIncarnationId() != second.GetIncarnationId() {
		t.Error("it has another life")
	}
	if late := c.pending(1); late != 0 {
		t.Errorf("the work has %d results", late)
	}
}

func TestRegistryThatStopsAnsweringIsLeft(t *testing.T) {
	registry := newRegistry(100 * time.Millisecond)
	run(t, registeredAt(serveRegistry(t, registry)), echo)
	registry.sees(t, "a report", func() bool { return registry.reports > 0 })
	registry.mu.Lock()
	registry.isSilent = true
	registry.mu.Unlock()
	registry.sees(t, "another registration", func() bool { return len(registry.registered) > 1 })
}

func TestRegistryThatIsNotThereYetIsFound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "late.sock")
	r := run(t, registeredAt(unixScheme+path), echo)
	c := r.dial(t)
	c.start(1, "test.echo", "no registry needed")
	c.texts(1)
	registry := newRegistry(time.Hour)
	serveRegistryAt(t, registry, path)
	registry.sees(t, "a report", func() bool { return registry.reports > 0 })
}

// broken is a registry whose stream takes no report any more, while one of its answers has still to be read.
type broken struct {
	rolev1.RoleRegistryServiceClient
	grpc.BidiStreamingClient[rolev1.KeepAliveRequest, rolev1.KeepAliveResponse]
	answers int
	reason  error
}

func (b *broken) KeepAlive(
	context.Context, ...grpc.CallOption,
) (grpc.BidiStreamingClient[rolev1.KeepAliveRequest, rolev1.KeepAliveResponse], error) {
	return b, nil
}

func (b *broken) Send(*rolev1.KeepAliveRequest) error { return io.EOF }

func (b *broken) Recv() (*rolev1.KeepAliveResponse, error) {
	if b.answers == 0 {
		return nil, b.reason
	}
	b.answers--
	return &rolev1.KeepAliveResponse{Registries: []string{"b"}}, nil
}

func TestStreamThatBreaksBehindAnAnswerIsLost(t *testing.T) {
	registry := &broken{answers: 1, reason: errors.New("reset")}
	r := &registration{
		targets:  []string{"a"},
		describe: func() *rolev1.Replica { return testReplica() },
		load:     func() *rolev1.ReplicaLoad { return nil },
	}
	if err := r.keepAlive(t.Context(), registry, "lease", time.Hour); !errors.Is(err, registry.reason) {
		t.Errorf("it ends with %v", err)
	}
	if !slices.Equal(r.targets, []string{"a", "b"}) {
		t.Errorf("known are %q", r.targets)
	}
}

func TestReplicaThatANewerProcessReplacedLeaves(t *testing.T) {
	registry := newRegistry(time.Hour)
	registry.refusal = &Error{Reason: ReasonStaleEpoch, Message: "a newer process has this replica"}
	r := run(t, registeredAt(serveRegistry(t, registry)), echo)
	if err := <-r.ended; err != nil {
		t.Error(err)
	}
	if len(registry.registered) != 1 {
		t.Errorf("it registered %d times", len(registry.registered))
	}
}
