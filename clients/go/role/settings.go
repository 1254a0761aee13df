package role

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	rolev1 "github.com/omniflow-serving/omniflow/clients/go/gen/role/v1"
)

const (
	protocolRevision = 1
	longestName      = 128
	longestTarget    = 512
	longestNode      = 256
)

var roleName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*$`)

// Settings are every limit and address of a role process. NewSettings has the defaults.
type Settings struct {
	// Role that graphs name.
	Role string
	// ReplicaID is unique in the role, kept across restarts.
	ReplicaID string
	// Listen is the gRPC target to serve on, unix:/path or host:port; empty: a socket in the runtime directory.
	Listen string
	// Advertise is the gRPC target under which others reach this process; empty: what it listens on.
	Advertise string
	// Registry are the gRPC targets of control planes to register with, comma-separated, tried in turn; empty: serve whoever
	// dials, register nowhere.
	Registry string
	// MaxActivations running and waiting; one more is refused with TOO_MANY_CALLS. No limit when 0.
	MaxActivations int
	// Heartbeat is the longest silence of an Execute stream.
	Heartbeat time.Duration
	// DrainGrace is how long running activations may go on after a drain that gives no time of its own.
	DrainGrace time.Duration
	// CleanupGrace is how long a stopped activation may keep its place; then the next one takes it.
	CleanupGrace time.Duration
	// Node is the name of the machine, for people and placement; empty: its host name.
	Node string
}

// NewSettings are the defaults of a replica.
func NewSettings(role, replicaID string) Settings {
	return Settings{
		Role:           role,
		ReplicaID:      replicaID,
		MaxActivations: 256,
		Heartbeat:      500 * time.Millisecond,
		DrainGrace:     30 * time.Second,
		CleanupGrace:   time.Second,
	}
}

// check gives INVALID_CONFIG for what the registry would refuse, or could not even be sent.
func (s *Settings) check() error {
	if !roleName.MatchString(s.Role) {
		return invalidConfig("the role %q is no name: a letter, then letters, digits, _ and -", s.Role)
	}
	if s.ReplicaID == "" {
		return invalidConfig("a replica needs an identifier")
	}
	if s.MaxActivations < 0 {
		return invalidConfig("%d activations at most make no sense; 0 is no limit", s.MaxActivations)
	}
	if s.Heartbeat <= 0 {
		return invalidConfig("a heartbeat every %s makes no sense", s.Heartbeat)
	}
	for _, text := range []struct {
		name, value string
		limit       int
	}{
		{"role", s.Role, longestName},
		{"replica identifier", s.ReplicaID, longestName},
		{"advertised target", s.Advertise, longestTarget},
		{"node", s.Node, longestNode},
	} {
		if len(text.value) > text.limit || !utf8.ValidString(text.value) {
			return invalidConfig("the %s must be UTF-8 of at most %d bytes", text.name, text.limit)
		}
	}
	return nil
}

// registries are the targets of Registry.
func (s *Settings) registries() []string {
	var targets []string
	for part := range strings.SplitSeq(s.Registry, ",") {
		if target := strings.TrimSpace(part); target != "" {
			targets = append(targets, target)
		}
	}
	return targets
}

// replica is the process as registries and control planes see it, but for its state.
func (s *Settings) replica(endpoint, incarnationID string, interfaces []string) *rolev1.Replica {
	node := s.Node
	if node == "" {
		node, _ = os.Hostname() // for people only
	}
	return &rolev1.Replica{
		Role:              s.Role,
		ReplicaId:         s.ReplicaID,
		IncarnationId:     incarnationID,
		Endpoint:          endpoint,
		Interfaces:        interfaces,
		ProtocolRevisions: []uint32{protocolRevision},
		MaxActivations:    uint32(s.MaxActivations),
		ProcessId:         uint64(os.Getpid()),
		Node:              node,
	}
}

func invalidConfig(format string, args ...any) *Error {
	return &Error{Reason: ReasonInvalidConfig, Message: fmt.Sprintf(format, args...)}
}
