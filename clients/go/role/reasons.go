package role

import "google.golang.org/grpc/codes"

// Reason says why something failed: the names of omniflow.common.v1.ErrorReason, where they are documented.
type Reason string

// The reasons. Roles state few of them; the rest is here for interfaces that pass on what others have said.
const (
	ReasonInvalidField       Reason = "INVALID_FIELD"
	ReasonUnknownGraph       Reason = "UNKNOWN_GRAPH"
	ReasonUnknownField       Reason = "UNKNOWN_FIELD"
	ReasonTypeMismatch       Reason = "TYPE_MISMATCH"
	ReasonMissingInput       Reason = "MISSING_INPUT"
	ReasonBufferRefRefused   Reason = "BUFFER_REF_REFUSED"
	ReasonPayloadTooLarge    Reason = "PAYLOAD_TOO_LARGE"
	ReasonMessageTooLarge    Reason = "MESSAGE_TOO_LARGE"
	ReasonRequestIDReused    Reason = "REQUEST_ID_REUSED"
	ReasonInvalidMedia       Reason = "INVALID_MEDIA"
	ReasonInvalidGraph       Reason = "INVALID_GRAPH"
	ReasonUnknownInterface   Reason = "UNKNOWN_INTERFACE"
	ReasonInvalidConfig      Reason = "INVALID_CONFIG"
	ReasonProtocolViolation  Reason = "PROTOCOL_VIOLATION"
	ReasonChecksumMismatch   Reason = "CHECKSUM_MISMATCH"
	ReasonUnknownCall        Reason = "UNKNOWN_CALL"
	ReasonInvalidResumeToken Reason = "INVALID_RESUME_TOKEN"
	ReasonEventsTrimmed      Reason = "EVENTS_TRIMMED"
	ReasonCallCancelled      Reason = "CALL_CANCELLED"
	ReasonCallSuperseded     Reason = "CALL_SUPERSEDED"
	ReasonDeadlineExceeded   Reason = "DEADLINE_EXCEEDED"
	ReasonClientLost         Reason = "CLIENT_LOST"
	ReasonOwnerLost          Reason = "OWNER_LOST"
	ReasonStaleOwner         Reason = "STALE_OWNER"
	ReasonCallEnded          Reason = "CALL_ENDED"
	ReasonTooManyCalls       Reason = "TOO_MANY_CALLS"
	ReasonDraining           Reason = "DRAINING"
	ReasonNoReplica          Reason = "NO_REPLICA"
	ReasonReplicaLost        Reason = "REPLICA_LOST"
	ReasonQuotaExceeded      Reason = "QUOTA_EXCEEDED"
	ReasonBufferFull         Reason = "BUFFER_FULL"
	ReasonPoolExhausted      Reason = "POOL_EXHAUSTED"
	ReasonStoreUnavailable   Reason = "STORE_UNAVAILABLE"
	ReasonInterfaceFailed    Reason = "INTERFACE_FAILED"
	ReasonImpossibleInput    Reason = "IMPOSSIBLE_INPUT"
	ReasonInvalidOutput      Reason = "INVALID_OUTPUT"
	ReasonLoopBoundExceeded  Reason = "LOOP_BOUND_EXCEEDED"
	ReasonCountNotReached    Reason = "COUNT_NOT_REACHED"
	ReasonCountConflict      Reason = "COUNT_CONFLICT"
	ReasonAmbiguousCompanion Reason = "AMBIGUOUS_COMPANION"
	ReasonReplayDiverged     Reason = "REPLAY_DIVERGED"
	ReasonUnknownSession     Reason = "UNKNOWN_SESSION"
	ReasonConflict           Reason = "CONFLICT"
	ReasonStateLost          Reason = "STATE_LOST"
	ReasonIncompatibleLayout Reason = "INCOMPATIBLE_LAYOUT"
	ReasonTransferUncertain  Reason = "TRANSFER_UNCERTAIN"
	ReasonStaleEpoch         Reason = "STALE_EPOCH"
	ReasonBarrierIncomplete  Reason = "BARRIER_INCOMPLETE"
	ReasonUnauthenticated    Reason = "UNAUTHENTICATED"
	ReasonPermissionDenied   Reason = "PERMISSION_DENIED"
	ReasonUnimplemented      Reason = "UNIMPLEMENTED"
	ReasonInternal           Reason = "INTERNAL"
	ReasonUnknownResource    Reason = "UNKNOWN_RESOURCE"
	ReasonConnectionLost     Reason = "CONNECTION_LOST"
)

// reasonsByCode is the one table from reason to status code; the code follows from the reason, never the other way round.
var reasonsByCode = map[codes.Code][]Reason{
	codes.InvalidArgument: {
		ReasonInvalidField, ReasonUnknownField, ReasonTypeMismatch, ReasonMissingInput, ReasonBufferRefRefused,
		ReasonInvalidMedia, ReasonInvalidGraph, ReasonUnknownInterface, ReasonInvalidConfig, ReasonCountConflict,
	},
	codes.NotFound: {ReasonUnknownGraph, ReasonUnknownCall, ReasonUnknownSession, ReasonUnknownResource},
	codes.ResourceExhausted: {
		ReasonPayloadTooLarge, ReasonMessageTooLarge, ReasonTooManyCalls, ReasonQuotaExceeded, ReasonBufferFull,
		ReasonPoolExhausted, ReasonLoopBoundExceeded,
	},
	codes.AlreadyExists: {ReasonRequestIDReused},
	codes.FailedPrecondition: {
		ReasonProtocolViolation, ReasonCallEnded, ReasonImpossibleInput, ReasonCountNotReached,
		ReasonAmbiguousCompanion, ReasonIncompatibleLayout, ReasonStaleEpoch,
	},
	codes.PermissionDenied: {ReasonInvalidResumeToken, ReasonPermissionDenied},
	codes.OutOfRange:       {ReasonEventsTrimmed},
	codes.Canceled:         {ReasonCallCancelled, ReasonClientLost},
	codes.Aborted:          {ReasonCallSuperseded, ReasonStaleOwner, ReasonConflict},
	codes.DeadlineExceeded: {ReasonDeadlineExceeded},
	codes.Unavailable: {
		ReasonOwnerLost, ReasonDraining, ReasonNoReplica, ReasonReplicaLost, ReasonBarrierIncomplete,
		ReasonConnectionLost, ReasonStoreUnavailable,
	},
	codes.Internal:        {ReasonInterfaceFailed, ReasonInvalidOutput, ReasonInternal},
	codes.DataLoss:        {ReasonChecksumMismatch, ReasonReplayDiverged, ReasonStateLost},
	codes.Unauthenticated: {ReasonUnauthenticated},
	codes.Unimplemented:   {ReasonUnimplemented},
	codes.Unknown:         {ReasonTransferUncertain},
}

var codeOf = func() map[Reason]codes.Code {
	table := make(map[Reason]codes.Code)
	for code, reasons := range reasonsByCode {
		for _, reason := range reasons {
			table[reason] = code
		}
	}
	return table
}()

// Code is the status code of the reason; INTERNAL for one that is none.
func (r Reason) Code() codes.Code {
	if code, ok := codeOf[r]; ok {
		return code
	}
	return codes.Internal
}
