package role

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Domain of every ErrorInfo of the platform.
const Domain = "omniflow"

// Texts of an RPC's status stand in HTTP/2 trailers, the message twice and percent-encoded. Peers drop trailers over
// 8 KiB, and with them the whole error.
const (
	longestMessage  = 600
	longestMetadata = 200
)

// Error is a failure that a caller can be told about. Its texts are written for the caller: they name the field or
// resource and say what to do, and never carry the text of another error.
type Error struct {
	Reason  Reason
	Message string
	// Field is the path of what is wrong, such as `start.facets[0].fields[text]`; empty when it is no single field.
	Field    string
	Metadata map[string]string
	// RetryAfter is when another attempt makes sense; 0 when it is not known.
	RetryAfter time.Duration
}

// Error is for logs.
func (e *Error) Error() string {
	return fmt.Sprintf("%s (%s): %s", e.Reason.Code(), e.Reason, e.Message)
}

// GRPCStatus lets gRPC answer an RPC with the error as it is.
func (e *Error) GRPCStatus() *status.Status {
	return status.FromProto(e.proto())
}

// proto is the status that events carry, with one ErrorInfo. Texts are made valid UTF-8, or they could not be sent.
func (e *Error) proto() *spb.Status {
	metadata := make(map[string]string, len(e.Metadata))
	for key, value := range e.Metadata {
		metadata[key] = cut(value, longestMetadata)
	}
	message := cut(e.Message, longestMessage)
	details := []proto.Message{&errdetails.ErrorInfo{Reason: string(e.Reason), Domain: Domain, Metadata: metadata}}
	if e.Field != "" {
		violation := &errdetails.BadRequest_FieldViolation{Field: cut(e.Field, longestMetadata), Description: message}
		details = append(details, &errdetails.BadRequest{
			FieldViolations: []*errdetails.BadRequest_FieldViolation{violation},
		})
	}
	if e.RetryAfter > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(e.RetryAfter)})
	}
	result := &spb.Status{Code: int32(e.Reason.Code()), Message: message}
	for _, detail := range details {
		packed, err := anypb.New(detail)
		if err != nil {
			continue // metadata with a key that is no UTF-8: the reason still goes out, by its code
		}
		result.Details = append(result.Details, packed)
	}
	return result
}

// mayPassElsewhere says whether another replica may have what this one lacks.
func (e *Error) mayPassElsewhere() bool {
	switch e.Reason {
	case ReasonTooManyCalls, ReasonBufferFull, ReasonPoolExhausted:
		return true
	default:
		return e.Reason.Code() == ReasonReplicaLost.Code()
	}
}

func invalidField(field, format string, args ...any) *Error {
	return fieldError(ReasonInvalidField, field, format, args...)
}

func fieldError(reason Reason, field, format string, args ...any) *Error {
	return &Error{Reason: reason, Field: field, Message: field + ": " + fmt.Sprintf(format, args...)}
}

func protocolViolation(format string, args ...any) *Error {
	return &Error{Reason: ReasonProtocolViolation, Message: fmt.Sprintf(format, args...)}
}

// cut shortens a text to a number of bytes, at the end of a character.
func cut(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len("…")], "") + "…"
}
