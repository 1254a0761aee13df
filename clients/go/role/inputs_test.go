package role

import (
	"testing"

	common "github.com/omniflow-serving/omniflow/clients/go/gen/common/v1"
	rolev1 "github.com/omniflow-serving/omniflow/clients/go/gen/role/v1"
)

var joins = &Declaration{
	Name: "test.joins",
	Inputs: Groups(
		Group("main", Required("text", TypeText), Optional("options", TypeJSON)),
		Group("image", Required("tensor", TypeTensor)),
	),
	Outputs: Fields(Required("text", TypeText)),
}

func tensor(payload *common.Payload) *Value {
	return &Value{Kind: &common.Value_Tensor{Tensor: &common.Tensor{Payload: payload}}}
}

func remote() *common.Payload {
	return &common.Payload{Place: &common.Payload_Remote{Remote: &common.RemoteRef{SizeBytes: 70_000}}}
}

func TestInputsKeepTheOrderOfContributions(t *testing.T) {
	options, err := JSON(map[string]any{"a": []any{1, "b"}})
	if err != nil {
		t.Fatal(err)
	}
	start := &rolev1.StartActivation{Facets: []*rolev1.Facet{
		facet("main", map[string][]*Value{"text": {Text("a"), Text("b")}, "options": {options}}),
		facet("main", map[string][]*Value{"text": {Text("c")}}),
	}}
	start.Facets[0].Fields["text"].ContextCount = 1
	in, failure := readInputs(start, joins)
	if failure != nil {
		t.Fatal(failure)
	}
	if all := in.All("text"); len(all) != 3 || all[0].GetText() != "a" || all[2].GetText() != "c" {
		t.Errorf("all are %v", all)
	}
	if in.Text("text") != "c" || in.Group() != "main" || in.Facets[0].ContextCount("text") != 1 {
		t.Errorf("text %q, group %q, context %d", in.Text("text"), in.Group(), in.Facets[0].ContextCount("text"))
	}
	if list := in.JSON("options").(map[string]any)["a"].([]any); list[0] != 1.0 || list[1] != "b" {
		t.Errorf("options are %v", in.JSON("options"))
	}
}

func TestInputsThatAreAbsentAreEmpty(t *testing.T) {
	in, failure := readInputs(&rolev1.StartActivation{}, joins)
	if failure != nil {
		t.Fatal(failure)
	}
	if in.Group() != "" || in.Text("text") != "" || in.JSON("options") != nil || in.Value("tensor") != nil {
		t.Errorf("%+v", in)
	}
}

func TestInputsThatAreNotAsDeclaredAreNamed(t *testing.T) {
	context := facet("main", map[string][]*Value{"text": {Text("a")}})
	context.Fields["text"].ContextCount = 2
	for name, c := range map[string]struct {
		facet  *rolev1.Facet
		reason Reason
		field  string
	}{
		"group":       {facet("other", nil), ReasonUnknownField, "start.facets[0].input_group"},
		"field":       {facet("image", map[string][]*Value{"text": {Text("a")}}), ReasonUnknownField, "start.facets[0].fields[text]"},
		"missing":     {facet("main", nil), ReasonMissingInput, "start.facets[0].fields[text]"},
		"empty":       {facet("main", map[string][]*Value{"text": {}}), ReasonMissingInput, "start.facets[0].fields[text]"},
		"no kind":     {facet("main", map[string][]*Value{"text": {{}}}), ReasonInvalidField, "start.facets[0].fields[text].values[0]"},
		"no value":    {facet("main", map[string][]*Value{"text": {nil}}), ReasonInvalidField, "start.facets[0].fields[text].values[0]"},
		"other type":  {facet("main", map[string][]*Value{"text": {Text("a"), Signal()}}), ReasonTypeMismatch, "start.facets[0].fields[text].values[1]"},
		"far payload": {facet("image", map[string][]*Value{"tensor": {tensor(remote())}}), ReasonUnimplemented, "start.facets[0].fields[tensor].values[0]"},
		"context":     {context, ReasonInvalidField, "start.facets[0].fields[text].context_count"},
	} {
		t.Run(name, func(t *testing.T) {
			_, failure := readInputs(&rolev1.StartActivation{Facets: []*rolev1.Facet{c.facet}}, joins)
			if failure == nil {
				t.Fatal("it is taken")
			}
			if failure.Reason != c.reason || failure.Field != c.field {
				t.Errorf("%s of %s", failure.Reason, failure.Field)
			}
		})
	}
}

func TestPayloadInTheMessageIsTaken(t *testing.T) {
	for _, payload := range []*common.Payload{nil, {}, {Place: &common.Payload_Inline{Inline: []byte{1}}}} {
		start := &rolev1.StartActivation{Facets: []*rolev1.Facet{
			facet("image", map[string][]*Value{"tensor": {tensor(payload)}}),
		}}
		if _, failure := readInputs(start, joins); failure != nil {
			t.Errorf("%v: %v", payload, failure)
		}
	}
}

func TestDeliveredYieldsThatAreNotAsDeclaredAreNamed(t *testing.T) {
	yielded := func(ordinal uint64, name string, value *Value) *rolev1.ActivationYield {
		return &rolev1.ActivationYield{Ordinal: ordinal, Fields: map[string]*Value{name: value}}
	}
	for name, c := range map[string]struct {
		yields []*rolev1.ActivationYield
		reason Reason
	}{
		"ordinal": {[]*rolev1.ActivationYield{yielded(1, "text", Text("a"))}, ReasonInvalidField},
		"field":   {[]*rolev1.ActivationYield{yielded(0, "other", Text("a"))}, ReasonUnknownField},
		"type":    {[]*rolev1.ActivationYield{yielded(0, "text", Text("a")), yielded(1, "text", Signal())}, ReasonTypeMismatch},
	} {
		t.Run(name, func(t *testing.T) {
			_, failure := readDelivered(&rolev1.StartActivation{DeliveredYields: c.yields}, joins)
			if failure == nil || failure.Reason != c.reason {
				t.Errorf("%v", failure)
			}
		})
	}
}

func TestEveryTypeHasAValueOfItsOwn(t *testing.T) {
	values := map[common.ValueType]*Value{
		TypeText:   Text(""),
		TypeTokens: {Kind: &common.Value_Tokens{}},
		TypeTensor: {Kind: &common.Value_Tensor{}},
		TypeImage:  {Kind: &common.Value_Image{}},
		TypeAudio:  {Kind: &common.Value_Audio{}},
		TypeVideo:  {Kind: &common.Value_Video{}},
		TypeAction: {Kind: &common.Value_Action{}},
		TypeBytes:  {Kind: &common.Value_Data{}},
		TypeJSON:   Number(1),
		TypeSignal: Signal(),
	}
	for number := range common.ValueType_name {
		wanted := common.ValueType(number)
		if got := typeOf(values[wanted]); got != wanted {
			t.Errorf("the value of %s is %s", typeName(wanted), typeName(got))
		}
		if !isHere(payloadOf(values[wanted])) {
			t.Errorf("a value of %s without a payload is elsewhere", typeName(wanted))
		}
	}
}
