package role

import (
	"os"
	"regexp"
	"strings"
	"testing"

	common "github.com/omniflow-serving/omniflow/clients/go/gen/common/v1"

	"google.golang.org/grpc/codes"
)

const contract = "../../../proto/omniflow/common/v1/error.proto"

// TestReasonsAreThoseOfTheContract reads the status code of each reason from the comment above it.
func TestReasonsAreThoseOfTheContract(t *testing.T) {
	text, err := os.ReadFile(contract)
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`// ([A-Z_]+): .*\n  ERROR_REASON_([A-Z_]+) = \d+;`).FindAllStringSubmatch(string(text), -1)
	if len(named) != len(common.ErrorReason_name)-1 { // all but UNSPECIFIED
		t.Fatalf("%d reasons have a comment with their code, of %d", len(named), len(common.ErrorReason_name)-1)
	}
	if len(codeOf) != len(named) {
		t.Errorf("the table has %d reasons, the contract %d", len(codeOf), len(named))
	}
	for _, match := range named {
		reason := Reason(match[2])
		code, isKnown := codeOf[reason]
		if !isKnown {
			t.Errorf("%s is not in the table", reason)
		} else if upper(code) != match[1] {
			t.Errorf("%s has the code %s, in the contract %s", reason, upper(code), match[1])
		}
	}
}

func TestReasonThatIsNoneIsInternal(t *testing.T) {
	if code := Reason("SOMETHING").Code(); code != codes.Internal {
		t.Errorf("it is %s", code)
	}
}

// upper is a code as gRPC's documents write it: DeadlineExceeded is DEADLINE_EXCEEDED.
func upper(code codes.Code) string {
	if code == codes.Canceled {
		return "CANCELLED"
	}
	words := regexp.MustCompile(`[A-Z][a-z]+`).FindAllString(code.String(), -1)
	return strings.ToUpper(strings.Join(words, "_"))
}
