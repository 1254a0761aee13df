package role

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net"
	"sync"
	"time"

	rolev1 "github.com/omniflow-serving/omniflow/clients/go/gen/role/v1"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
)

const (
	// maxFrameBytes is the largest message that either side takes.
	maxFrameBytes = 16 << 20
	keepaliveTime = 10 * time.Second
	keepaliveWait = 5 * time.Second
	minPingGap    = time.Second
)

// Server is one replica: the only place that knows all parts.
//
//	listen ─▶ register as READY ─▶ drain asked for ─▶ DRAINING
//	       ─▶ idle, or the grace is over ─▶ deregister ─▶ streams end
//
// Asked for by the end of Run's context, by the registry, or by Drain. What interfaces need is set up before Listen.
type Server struct {
	settings Settings
	listener net.Listener
	host     *host
	service  *service
	grpc     *grpc.Server
	health   *health.Server

	askOnce    sync.Once
	asked      chan struct{}
	drainGrace time.Duration
}

// Listen checks the settings and listens; Run serves. It gives an *Error with INVALID_CONFIG.
func Listen(settings Settings, interfaces ...Interface) (*Server, error) {
	if err := settings.check(); err != nil {
		return nil, err
	}
	host, err := newHost(interfaces, settings.MaxActivations, settings.CleanupGrace)
	if err != nil {
		return nil, err
	}
	target := settings.Listen
	if target == "" {
		if target, err = defaultTarget(settings.Role, settings.ReplicaID); err != nil {
			return nil, err
		}
	}
	listener, endpoint, err := listen(target)
	if err != nil {
		return nil, err
	}
	if settings.Advertise != "" {
		endpoint = settings.Advertise
	}
	replica := settings.replica(endpoint, rand.Text(), host.names())
	server := &Server{
		settings: settings,
		listener: listener,
		host:     host,
		service:  newService(host, replica, settings.Heartbeat),
		grpc:     newGRPCServer(),
		health:   health.NewServer(),
		asked:    make(chan struct{}),
	}
	rolev1.RegisterRoleExecutionServiceServer(server.grpc, server.service)
	grpc_health_v1.RegisterHealthServer(server.grpc, server.health)
	reflection.Register(server.grpc)
	return server, nil
}

// Replica is the process as registries and control planes see it.
func (s *Server) Replica() *rolev1.Replica {
	return s.service.described()
}

// Drain takes no new activations, lets those that run end within the grace, then stops. The first call counts.
func (s *Server) Drain(grace time.Duration) {
	s.askOnce.Do(func() {
		s.drainGrace = grace
		close(s.asked)
	})
}

// Run serves until the context ends or a drain is asked for, and drains. The error is of a listener that broke.
func (s *Server) Run(ctx context.Context) error {
	s.setHealth(grpc_health_v1.HealthCheckResponse_SERVING)
	broken := make(chan error, 1)
	go func() { broken <- s.grpc.Serve(s.listener) }()
	defer s.grpc.Stop()
	entry := &registration{
		given:    s.settings.registries(),
		describe: s.service.described,
		load:     s.host.load,
		onDrain:  s.drainAsked,
		changed:  make(chan struct{}, 1),
	}
	leave := s.register(entry)
	defer leave()
	replica := s.service.replica
	slog.Info("serving", "role", replica.GetRole(), "replica", replica.GetReplicaId(),
		"interfaces", replica.GetInterfaces(), "endpoint", replica.GetEndpoint())
	select {
	case <-ctx.Done():
		s.Drain(s.settings.DrainGrace)
	case <-s.asked:
	case err := <-broken:
		return err
	}
	s.windDown(entry, leave)
	return nil
}

// register keeps the replica registered; what it returns leaves the registry. Repeats change nothing.
func (s *Server) register(entry *registration) (leave func()) {
	if len(entry.given) == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	hasLeft := make(chan struct{})
	go func() {
		defer close(hasLeft)
		entry.run(ctx)
	}()
	return func() {
		cancel()
		<-hasLeft
	}
}

func (s *Server) windDown(entry *registration, leave func()) {
	slog.Info("draining", "grace", s.drainGrace)
	idle := s.host.drain()
	entry.announce()
	s.setHealth(grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	select {
	case <-idle:
	case <-time.After(s.drainGrace):
		s.host.stopAll(&Error{Reason: ReasonDraining, Message: "the replica was stopped before the activation's end"})
	}
	leave()
	s.service.close()
	// Run ends with Stop, which drops what is on its way: first let connections end by themselves.
	hasEnded := make(chan struct{})
	go func() {
		defer close(hasEnded)
		s.grpc.GracefulStop()
	}()
	select {
	case <-hasEnded:
	case <-time.After(flushTime):
	}
}

func (s *Server) drainAsked(grace *time.Duration) {
	if grace == nil {
		grace = &s.settings.DrainGrace
	}
	s.Drain(*grace)
}

func (s *Server) setHealth(serving grpc_health_v1.HealthCheckResponse_ServingStatus) {
	for _, name := range []string{"", rolev1.RoleExecutionService_ServiceDesc.ServiceName} {
		s.health.SetServingStatus(name, serving)
	}
}

func newGRPCServer() *grpc.Server {
	return grpc.NewServer(
		grpc.ForceServerCodecV2(newRawCodec()),
		grpc.MaxRecvMsgSize(maxFrameBytes),
		grpc.MaxSendMsgSize(maxFrameBytes),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveTime, Timeout: keepaliveWait}),
		// Peers ping every 10 s, also while nothing runs: that is never too many pings.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPingGap, PermitWithoutStream: true}),
	)
}
