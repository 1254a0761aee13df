package role

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"time"

	rolev1 "github.com/omniflow-serving/omniflow/clients/go/gen/role/v1"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

const (
	firstBackoff = 50 * time.Millisecond
	lastBackoff  = time.Second
	// rpcTimeout: a control plane that takes longer stands still; another one may not.
	rpcTimeout   = 2 * time.Second
	defaultLease = 3 * time.Second
)

var (
	errReplaced   = errors.New("the registry knows a newer process of the same replica")
	errLeaseLost  = errors.New("the registry does not keep the lease any more")
	errUnanswered = errors.New("the registry has not answered for the length of the lease")
)

// registration is the replica's entry in the registry.
//
//	register ──ok──▶ keep alive every third of the lease ──reregister──▶ register …
//	    │                                └──lost──▶ register with the next control plane …
//	    └─fails─▶ the next; when all have failed: wait 0.05 s, 0.1 s … 1 s ─▶ register …
//
// The control planes of a cluster share what they know of replicas, so one registration is enough. It may be with any of
// those that were given at the start, and of those that they have named since. A lost registry never disturbs activations:
// control planes that have a stream go on using it.
type registration struct {
	given []string
	// targets are where run registers, the one in use first.
	targets []string
	// describe gives the replica with its state of the moment, load what runs.
	describe func() *rolev1.Replica
	load     func() *rolev1.ReplicaLoad
	// onDrain is called when the registry wants the replica drained; nil: within the replica's own time.
	onDrain func(grace *time.Duration)
	// changed has an element when the state has changed, so that the registry is told at once.
	changed chan struct{}
}

// announce tells the registry of a change now, not at the next keep-alive.
func (r *registration) announce() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// run keeps the replica registered until the context ends; then it deregisters. It returns early when a newer process has
// taken the replica over.
func (r *registration) run(ctx context.Context) {
	r.targets = slices.Clone(r.given)
	var rounds pace
	for ctx.Err() == nil {
		hasRegistered, err := r.stay(ctx)
		if errors.Is(err, errReplaced) {
			slog.Warn("leaving: " + err.Error())
			r.onDrain(new(time.Duration))
			return
		}
		if ctx.Err() != nil {
			return
		}
		pause := rounds.failed(len(r.targets), hasRegistered)
		slog.Warn("not registered", "registry", r.targets[0], "error", err, "next_in", pause)
		r.targets = append(r.targets[1:], r.targets[0])
		wait(ctx, pause)
	}
}

// stay keeps the replica registered with the current control plane. It says whether it ever was, and what has ended that.
func (r *registration) stay(ctx context.Context) (hasRegistered bool, err error) {
	connection, err := dial(r.targets[0])
	if err != nil {
		return false, err
	}
	defer connection.Close()
	client := rolev1.NewRoleRegistryServiceClient(connection)
	for {
		lease, ttl, err := r.register(ctx, client)
		if err != nil {
			return hasRegistered, err
		}
		hasRegistered = true
		err = r.keepAlive(ctx, client, lease, ttl)
		if ctx.Err() != nil {
			deregister(client, lease)
			return true, err
		}
		if !errors.Is(err, errLeaseLost) {
			return true, err
		}
		slog.Info("registering again", "registry", r.targets[0], "reason", err)
		wait(ctx, firstBackoff)
	}
}

// learn is where to go on when this control plane is gone. Those that were given stay: all others may be gone by then.
func (r *registration) learn(named []string) {
	if len(named) == 0 {
		return
	}
	known := r.targets[:1:1]
	for _, target := range slices.Concat(named, r.given) {
		if !slices.Contains(known, target) {
			known = append(known, target)
		}
	}
	r.targets = known
}

// pace says when the next control plane is tried: at once, until all have failed in a row.
type pace struct {
	failures int
	pause    time.Duration // the last one
}

// failed is the pause after one of so many has failed, or has been lost after a registration.
func (p *pace) failed(known int, hasRegistered bool) time.Duration {
	if hasRegistered {
		*p = pace{}
	}
	if p.failures++; p.failures < known {
		return 0
	}
	p.failures, p.pause = 0, min(lastBackoff, max(firstBackoff, 2*p.pause))
	return p.pause
}

// wait returns also when the context ends.
func wait(ctx context.Context, pause time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
}

func (r *registration) register(
	ctx context.Context, client rolev1.RoleRegistryServiceClient,
) (lease string, ttl time.Duration, err error) {
	select {
	case <-r.changed: // what is described now has it
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	response, err := client.RegisterReplica(ctx, &rolev1.RegisterReplicaRequest{Replica: r.describe()})
	if err != nil {
		if reasonOf(err) == ReasonStaleEpoch {
			return "", 0, errReplaced
		}
		return "", 0, err
	}
	if ttl = response.GetLeaseTtl().AsDuration(); ttl <= 0 {
		ttl = defaultLease
	}
	r.learn(response.GetRegistries())
	slog.Info("registered", "registry", r.targets[0], "lease", ttl)
	return response.GetLeaseId(), ttl, nil
}

// keepAlive returns when the registration must be renewed, and says why.
func (r *registration) keepAlive(
	ctx context.Context, client rolev1.RoleRegistryServiceClient, lease string, ttl time.Duration,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.KeepAlive(ctx)
	if err != nil {
		return err
	}
	answers, lost := make(chan *rolev1.KeepAliveResponse), make(chan error, 1)
	go func() { lost <- readAnswers(ctx, stream, answers) }()
	every := time.NewTicker(ttl / 3)
	defer every.Stop()
	// Every report is answered, so silence for the whole lease means that the registry has lost it.
	silence := time.NewTimer(ttl)
	defer silence.Stop()
	for {
		report := &rolev1.KeepAliveRequest{LeaseId: lease, State: r.describe().GetState(), Load: r.load()}
		_ = stream.Send(report) // the reader has the reason of a failure, behind the answers that came before it
		for isDue := false; !isDue; {
			select {
			case <-every.C:
				isDue = true
			case <-r.changed:
				isDue = true
			case answer := <-answers:
				silence.Reset(ttl)
				if answer.GetReregister() != nil {
					return errLeaseLost
				}
				r.learn(answer.GetRegistries())
				r.heed(answer.GetDrain())
			case err := <-lost:
				return err
			case <-silence.C:
				return errUnanswered
			}
		}
	}
}

func (r *registration) heed(drain *rolev1.DrainDirective) {
	if drain == nil {
		return
	}
	if drain.GetGrace() == nil {
		r.onDrain(nil)
		return
	}
	grace := drain.GetGrace().AsDuration()
	r.onDrain(&grace)
}

func readAnswers(
	ctx context.Context,
	stream grpc.BidiStreamingClient[rolev1.KeepAliveRequest, rolev1.KeepAliveResponse],
	answers chan<- *rolev1.KeepAliveResponse,
) error {
	for {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return errLeaseLost // it ended the stream in order, and is still there
		}
		if err != nil {
			return err
		}
		select {
		case answers <- answer:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// deregister leaves in order, best effort: otherwise the lease runs out.
func deregister(client rolev1.RoleRegistryServiceClient, lease string) {
	if lease == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), rpcTimeout)
	defer cancel()
	request := &rolev1.DeregisterReplicaRequest{LeaseId: lease}
	if _, err := client.DeregisterReplica(ctx, request); err != nil {
		slog.Warn("not deregistered; the lease will run out", "error", err)
	}
}

// dial makes a channel to a process of the platform: without the environment's proxy, which is for the world outside, and
// without the long pauses between attempts that are made for it.
func dial(target string) (*grpc.ClientConn, error) {
	pauses := backoff.Config{BaseDelay: firstBackoff, Multiplier: 2, Jitter: 0.2, MaxDelay: lastBackoff}
	return grpc.NewClient(
		target,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: pauses, MinConnectTimeout: rpcTimeout}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveWait}),
	)
}

// reasonOf is the reason that the platform has stated; empty when it has not.
func reasonOf(err error) Reason {
	for _, detail := range status.Convert(err).Details() {
		if info, isInfo := detail.(*errdetails.ErrorInfo); isInfo && info.GetDomain() == Domain {
			return Reason(info.GetReason())
		}
	}
	return ""
}
