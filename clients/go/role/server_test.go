package role

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	rolev1 "github.com/omniflow-serving/omniflow/clients/go/gen/role/v1"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// running is a server on a socket of the test, with a client; ended has what Run returned.
type running struct {
	*Server
	client rolev1.RoleExecutionServiceClient
	health grpc_health_v1.HealthClient
	stop   context.CancelFunc
	ended  <-chan error
}

func run(t *testing.T, change func(*Settings), interfaces ...Interface) running {
	t.Helper()
	settings := NewSettings("test", "test-0")
	settings.Listen = unixScheme + filepath.Join(t.TempDir(), "role.sock")
	if change != nil {
		change(&settings)
	}
	server, err := Listen(settings, interfaces...)
	if err != nil {
		t.Fatal(err)
	}
	connection, err := dial(server.Replica().GetEndpoint())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		server.Drain(0)
		stop()
		_ = connection.Close()
	})
	return running{
		server, rolev1.NewRoleExecutionServiceClient(connection), grpc_health_v1.NewHealthClient(connection), stop, ended,
	}
}

// dial opens a stream to the server and says hello.
func (r running) dial(t *testing.T) *control {
	t.Helper()
	stream, err := r.client.Execute(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, answer := dialled(t, stream, &rolev1.ControlHello{ReplicaIncarnationId: r.Replica().GetIncarnationId()})
	if answer.GetReplica().GetEndpoint() != r.Replica().GetEndpoint() {
		t.Errorf("the hello is %v", answer)
	}
	return c
}

func TestServerRunsActivationsOverGRPC(t *testing.T) {
	r := run(t, nil, echo, letters)
	c := r.dial(t)
	const count = 2_000
	c.start(1, "test.letters", strings.Repeat("x", count), withWindow(2*count))
	if texts := c.texts(1); len(texts) != count {
		t.Errorf("%d yields", len(texts))
	}
	if c.count > count {
		t.Errorf("%d messages for %d yields", c.count, count)
	}
}

func TestServerTakesAndGivesMessagesOfMegabytes(t *testing.T) {
	c := run(t, nil, echo).dial(t)
	text := strings.Repeat("ä", maxTextBytes/2)
	c.start(1, "test.echo", text)
	if texts := c.texts(1); texts[0] != text {
		t.Errorf("%d bytes came back", len(texts[0]))
	}
}

func TestServerRefusesAMessageThatIsTooLarge(t *testing.T) {
	c := run(t, nil, echo).dial(t)
	c.start(1, "test.echo", strings.Repeat("x", maxFrameBytes))
	if err := c.end(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("the stream ended with %v", err)
	}
}

func TestServerNamesWhatTheStreamDidWrong(t *testing.T) {
	r := run(t, nil, echo)
	for name, c := range map[string]struct {
		hello  *rolev1.ControlHello
		reason Reason
	}{
		"no hello":   {nil, ReasonProtocolViolation},
		"other life": {&rolev1.ControlHello{ReplicaIncarnationId: "an earlier one"}, ReasonStaleEpoch},
	} {
		t.Run(name, func(t *testing.T) {
			stream, err := r.client.Execute(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			control := newControl(t, stream)
			if c.hello == nil {
				control.start(1, "test.echo", "a")
			} else {
				control.send(&rolev1.ExecuteCommand{Command: &rolev1.ExecuteCommand_Hello{Hello: c.hello}})
			}
			if err := control.end(); reasonOf(err) != c.reason {
				t.Errorf("the stream ended with %v", err)
			}
		})
	}
}

func TestServerAnswersAHalfClosedStreamWithAllThatIsQueued(t *testing.T) {
	ended := make(chan error, 1)
	c := run(t, nil, waiting("test.waiting", ended)).dial(t)
	c.start(1, "test.waiting", "")
	c.begun(1)
	if err := c.stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if failure := c.failure(1); failure.reason != ReasonCallCancelled {
		t.Errorf("it fails with %+v", failure)
	}
	if err := c.end(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ended with %v", err)
	}
}

func TestBrokenConnectionCancelsWhatItStarted(t *testing.T) {
	ended := make(chan error, 1)
	r := run(t, nil, waiting("test.waiting", ended))
	ctx, disconnect := context.WithCancel(t.Context())
	stream, err := r.client.Execute(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c, _ := dialled(t, stream, &rolev1.ControlHello{ReplicaIncarnationId: r.Replica().GetIncarnationId()})
	c.start(1, "test.waiting", "")
	c.begun(1)
	disconnect()
	if cause := <-ended; reasonIn(cause) != ReasonCallCancelled {
		t.Errorf("the cause is %v", cause)
	}
}

func TestCancelActivationsAndReleaseCall(t *testing.T) {
	ended := make(chan error, 3)
	r := run(t, nil, waiting("test.waiting", ended))
	c := r.dial(t)
	for handle, callID := range map[uint64]string{1: "a", 2: "a", 3: "b"} {
		c.start(handle, "test.waiting", "", ofCall(callID))
		c.begun(handle)
	}
	cancelled, err := r.client.CancelActivations(t.Context(), &rolev1.CancelActivationsRequest{CallId: "a", Reason: "enough"})
	if err != nil || cancelled.GetCancelled() != 2 {
		t.Errorf("%v, %v", cancelled, err)
	}
	for _, handle := range []uint64{1, 2} {
		if failure := c.failure(handle); failure.message != "enough" {
			t.Errorf("it fails with %+v", failure)
		}
	}
	if _, err := r.client.ReleaseCall(t.Context(), &rolev1.ReleaseCallRequest{CallIds: []string{"a", "b", "c"}}); err != nil {
		t.Error(err)
	}
	if failure := c.failure(3); failure.reason != ReasonCallCancelled {
		t.Errorf("it fails with %+v", failure)
	}
}

func TestRequestsThatBreakTheirRulesAreNamed(t *testing.T) {
	r := run(t, nil, echo)
	cancel := func(callID, reason string) error {
		_, err := r.client.CancelActivations(t.Context(), &rolev1.CancelActivationsRequest{CallId: callID, Reason: reason})
		return err
	}
	release := func(count int) error {
		_, err := r.client.ReleaseCall(t.Context(), &rolev1.ReleaseCallRequest{CallIds: make([]string, count)})
		return err
	}
	for name, err := range map[string]error{
		"no call":     cancel("", ""),
		"long call":   cancel(strings.Repeat("x", longestCallID+1), ""),
		"long reason": cancel("a", strings.Repeat("x", longestReason+1)),
		"no calls":    release(0),
		"many calls":  release(mostCallIDs + 1),
	} {
		if reasonOf(err) != ReasonInvalidField || status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := errors.Join(cancel(strings.Repeat("x", longestCallID), ""), release(mostCallIDs)); err != nil {
		t.Error(err)
	}
}

func TestDescribeRoleTellsWhatItServes(t *testing.T) {
	r := run(t, func(settings *Settings) { settings.Node = "here" }, letters, echo)
	described, err := r.client.DescribeRole(t.Context(), &rolev1.DescribeRoleRequest{})
	if err != nil {
		t.Fatal(err)
	}
	replica := described.GetReplica()
	if replica.GetState() != rolev1.ReplicaState_REPLICA_STATE_READY || replica.GetNode() != "here" ||
		!slices.Equal(replica.GetInterfaces(), []string{"test.echo", "test.letters"}) ||
		!slices.Equal(replica.GetProtocolRevisions(), []uint32{1}) || len(replica.GetLanes()) > 0 {
		t.Errorf("the replica is %v", replica)
	}
	if first := described.GetInterfaces()[0]; first.GetName() != "test.echo" || !first.GetIsStreaming() ||
		first.GetInputGroups()[0].GetFields()[0].GetName() != "text" || first.GetOutputs()[0].GetType() != TypeText {
		t.Errorf("the interface is %v", first)
	}
}

func healthOf(t *testing.T, r running, service string) grpc_health_v1.HealthCheckResponse_ServingStatus {
	t.Helper()
	answer, err := r.health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service})
	if err != nil {
		t.Fatal(err)
	}
	return answer.GetStatus()
}

func TestDrainLetsWorkEndAndTakesNoOther(t *testing.T) {
	goOn := make(chan struct{})
	slow := streaming("test.slow", func(_ context.Context, _ *Activation, yield Yield) error {
		if err := yield(Outputs{"text": Text("began")}); err != nil {
			return err
		}
		<-goOn
		return yield(Outputs{"text": Text("ended")})
	})
	r := run(t, nil, slow)
	c := r.dial(t)
	if serving := healthOf(t, r, ""); serving != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("before it is %s", serving)
	}
	c.start(1, "test.slow", "")
	c.begun(1)
	r.stop()
	eventually(t, "a drain", func() bool {
		return r.Replica().GetState() == rolev1.ReplicaState_REPLICA_STATE_DRAINING
	})
	eventually(t, "its health", func() bool {
		return healthOf(t, r, "omniflow.role.v1.RoleExecutionService") == grpc_health_v1.HealthCheckResponse_NOT_SERVING
	})
	c.start(2, "test.slow", "")
	if failure := c.failure(2); failure.reason != ReasonDraining || !failure.isRetryable || !failure.isRefused {
		t.Errorf("it fails with %+v", failure)
	}
	close(goOn)
	results := c.finish(1)
	if len(results) != 2 || results[1].GetCompleted().GetYieldCount() != 2 {
		t.Errorf("results: %v", results)
	}
	if err := c.end(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ended with %v", err)
	}
	if err := <-r.ended; err != nil {
		t.Errorf("the server ended with %v", err)
	}
}

func TestDrainWhoseGraceIsOverFailsWhatStillRuns(t *testing.T) {
	ended := make(chan error, 1)
	r := run(t, func(settings *Settings) { settings.DrainGrace = time.Millisecond }, waiting("test.waiting", ended))
	c := r.dial(t)
	c.start(1, "test.waiting", "")
	c.begun(1)
	r.stop()
	if failure := c.failure(1); failure.reason != ReasonDraining || !failure.isRetryable || failure.isRefused {
		t.Errorf("it fails with %+v", failure)
	}
	if err := <-r.ended; err != nil {
		t.Errorf("the server ended with %v", err)
	}
}

func TestSettingsThatMakeNoSenseAreRefused(t *testing.T) {
	for name, change := range map[string]func(*Settings){
		"no role":         func(s *Settings) { s.Role = "" },
		"role":            func(s *Settings) { s.Role = "a role" },
		"long role":       func(s *Settings) { s.Role = strings.Repeat("r", longestName+1) },
		"no replica":      func(s *Settings) { s.ReplicaID = "" },
		"replica":         func(s *Settings) { s.ReplicaID = "\xff" },
		"node":            func(s *Settings) { s.Node = "\xff" },
		"heartbeat":       func(s *Settings) { s.Heartbeat = 0 },
		"max activations": func(s *Settings) { s.MaxActivations = -1 },
		"address":         func(s *Settings) { s.Listen = "nowhere" },
		"path":            func(s *Settings) { s.Listen = "unix:/" + strings.Repeat("p", longestUnixPath) },
		"folder":          func(s *Settings) { s.Listen = "unix:/does/not/exist" },
	} {
		t.Run(name, func(t *testing.T) {
			settings := NewSettings("test", "test-0")
			settings.Listen = unixScheme + filepath.Join(t.TempDir(), "role.sock")
			change(&settings)
			if _, err := Listen(settings, echo); reasonIn(err) != ReasonInvalidConfig {
				t.Errorf("it is taken: %v", err)
			}
		})
	}
}

func TestInterfacesThatCannotBeTakenApartAreRefused(t *testing.T) {
	for name, interfaces := range map[string][]Interface{"twice": {echo, letters, echo}, "no name": {streaming("", nil)}} {
		if _, err := newHost(interfaces, 0, 0); reasonIn(err) != ReasonInvalidConfig {
			t.Errorf("%s: %v", name, err)
		}
	}
}
