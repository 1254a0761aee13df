package role

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

func TestErrorIsAStatusWithItsDetails(t *testing.T) {
	failure := &Error{
		Reason:     ReasonTooManyCalls,
		Message:    "full",
		Field:      "start",
		Metadata:   map[string]string{"node": "split"},
		RetryAfter: 100 * time.Millisecond,
	}
	converted := status.Convert(fmt.Errorf("wrapped: %w", failure))
	if converted.Code() != codes.ResourceExhausted {
		t.Errorf("the code is %s", converted.Code())
	}
	var info *errdetails.ErrorInfo
	var request *errdetails.BadRequest
	var retry *errdetails.RetryInfo
	for _, detail := range converted.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			info = detail
		case *errdetails.BadRequest:
			request = detail
		case *errdetails.RetryInfo:
			retry = detail
		}
	}
	if info.GetReason() != "TOO_MANY_CALLS" || info.GetDomain() != "omniflow" || info.GetMetadata()["node"] != "split" {
		t.Errorf("the info is %v", info)
	}
	if violations := request.GetFieldViolations(); len(violations) != 1 || violations[0].GetField() != "start" {
		t.Errorf("the violations are %v", request)
	}
	if retry.GetRetryDelay().AsDuration() != 100*time.Millisecond {
		t.Errorf("the delay is %v", retry)
	}
	if reasonOf(converted.Err()) != ReasonTooManyCalls {
		t.Errorf("its reason is read as %q", reasonOf(converted.Err()))
	}
}

func TestReasonThatNobodyStatedIsEmpty(t *testing.T) {
	for _, err := range []error{nil, errors.New("broken"), status.Error(codes.Unavailable, "gone")} {
		if reason := reasonOf(err); reason != "" {
			t.Errorf("%v has the reason %s", err, reason)
		}
	}
}

func TestErrorWhoseTextsAreTooLongOrNoUTF8CanBeSent(t *testing.T) {
	long := strings.Repeat("ä", 100_000)
	for _, failure := range []*Error{
		{Reason: ReasonInternal, Message: long, Field: long, Metadata: map[string]string{"key": long}},
		{Reason: ReasonInternal, Message: "\xff", Field: "\xff", Metadata: map[string]string{"key": "\xff"}},
		{Reason: "\xff", Metadata: map[string]string{"\xff": "value"}},
	} {
		data, err := proto.Marshal(failure.proto())
		if err != nil {
			t.Errorf("it cannot be sent: %v", err)
		}
		if len(data) > 4096 { // what fits into trailers, twice and percent-encoded
			t.Errorf("it has %d bytes", len(data))
		}
	}
}

func TestCutEndsAtACharacter(t *testing.T) {
	for limit := 3; limit < 12; limit++ {
		short := cut("äöüäöüäöü", limit)
		if !utf8.ValidString(short) || len(short) > limit || !strings.HasSuffix(short, "…") {
			t.Errorf("cut to %d bytes it is %q", limit, short)
		}
	}
	if whole := cut("äöü", 6); whole != "äöü" {
		t.Errorf("what fits is cut to %q", whole)
	}
}

func TestWhatAnotherReplicaMayDo(t *testing.T) {
	for reason, want := range map[Reason]bool{
		ReasonDraining:         true,
		ReasonNoReplica:        true,
		ReasonTooManyCalls:     true,
		ReasonCallCancelled:    false,
		ReasonUnknownInterface: false,
		ReasonInterfaceFailed:  false,
		ReasonQuotaExceeded:    false,
	} {
		if got := (&Error{Reason: reason}).mayPassElsewhere(); got != want {
			t.Errorf("%s: %t", reason, got)
		}
	}
}
