package role

import (
	"fmt"

	common "github.com/omniflow-serving/omniflow/clients/go/gen/common/v1"
	rolev1 "github.com/omniflow-serving/omniflow/clients/go/gen/role/v1"
	workflow "github.com/omniflow-serving/omniflow/clients/go/gen/workflow/v1"
)

// Inputs are the inputs of one activation. Usually there is one facet; a count join may complete several input groups at
// once, or none. What is asked of the whole is answered over all facets, in their order. Everything is as declared: an
// activation whose inputs are not never runs.
type Inputs struct {
	Facets []Facet
}

// Facet is the inputs of one input group.
type Facet struct {
	Group  string
	fields map[string]*rolev1.FieldValues
}

// Group is the input group of the first facet; empty without one.
func (in Inputs) Group() string {
	if len(in.Facets) == 0 {
		return ""
	}
	return in.Facets[0].Group
}

// All are the values of a field in the order of their contribution; none when the field is absent.
func (in Inputs) All(name string) []*Value {
	var values []*Value
	for _, facet := range in.Facets {
		values = append(values, facet.All(name)...)
	}
	return values
}

// Value is the last value of a field; nil when it is absent.
func (in Inputs) Value(name string) *Value {
	values := in.All(name)
	if len(values) == 0 {
		return nil
	}
	return values[len(values)-1]
}

// Text is the last value of a text field; empty when it is absent.
func (in Inputs) Text(name string) string {
	return in.Value(name).GetText()
}

// JSON is the last value of a JSON field, as encoding/json would give it; nil when it is absent.
func (in Inputs) JSON(name string) any {
	return in.Value(name).GetJson().AsInterface()
}

// All are the values of a field in the order of their contribution.
func (f Facet) All(name string) []*Value {
	items := f.fields[name].GetValues()
	values := make([]*Value, len(items))
	for i, item := range items {
		values[i] = item.GetValue()
	}
	return values
}

// ContextCount is how many of All, from the first on, repeat earlier yields as the left context of a chunk.
func (f Facet) ContextCount(name string) int {
	return int(f.fields[name].GetContextCount())
}

// readInputs checks the facets of a start against the declaration.
func readInputs(start *rolev1.StartActivation, declaration *Declaration) (Inputs, *Error) {
	inputs := Inputs{Facets: make([]Facet, len(start.GetFacets()))}
	for i, facet := range start.GetFacets() {
		path := fmt.Sprintf("start.facets[%d]", i)
		if failure := checkFacet(path, facet, declaration); failure != nil {
			return Inputs{}, failure
		}
		inputs.Facets[i] = Facet{Group: facet.GetInputGroup(), fields: facet.GetFields()}
	}
	return inputs, nil
}

func checkFacet(path string, facet *rolev1.Facet, declaration *Declaration) *Error {
	group := declaration.group(facet.GetInputGroup())
	if group == nil {
		return fieldError(ReasonUnknownField, path+".input_group",
			"%s has no input group %q", declaration.Name, facet.GetInputGroup())
	}
	for name, values := range facet.GetFields() {
		field := fieldNamed(group.GetFields(), name)
		if field == nil {
			return fieldError(ReasonUnknownField, fmt.Sprintf("%s.fields[%s]", path, name),
				"group %q of %s has no such field", group.GetName(), declaration.Name)
		}
		if failure := checkField(fmt.Sprintf("%s.fields[%s]", path, name), values, field); failure != nil {
			return failure
		}
	}
	for _, field := range group.GetFields() {
		if !field.GetIsOptional() && len(facet.GetFields()[field.GetName()].GetValues()) == 0 {
			return fieldError(ReasonMissingInput, fmt.Sprintf("%s.fields[%s]", path, field.GetName()),
				"it is required by %s", declaration.Name)
		}
	}
	return nil
}

func checkField(path string, values *rolev1.FieldValues, field *workflow.Field) *Error {
	for i, item := range values.GetValues() {
		if failure := checkInput(fmt.Sprintf("%s.values[%d]", path, i), item.GetValue(), field.GetType()); failure != nil {
			return failure
		}
	}
	if count := values.GetContextCount(); int64(count) > int64(len(values.GetValues())) {
		return invalidField(path+".context_count", "it is %d of %d values", count, len(values.GetValues()))
	}
	return nil
}

func checkInput(path string, value *Value, wanted common.ValueType) *Error {
	switch given := typeOf(value); {
	case given == common.ValueType_VALUE_TYPE_UNSPECIFIED:
		return invalidField(path, "the value has no kind")
	case given != wanted:
		return fieldError(ReasonTypeMismatch, path, "it is %s, declared is %s", typeName(given), typeName(wanted))
	case !isHere(payloadOf(value)):
		return fieldError(ReasonUnimplemented, path,
			"its payload is kept by another process; this replica takes payloads of at most %d bytes", maxPayloadBytes)
	default:
		return nil
	}
}

// readDelivered checks the yields of earlier attempts.
func readDelivered(start *rolev1.StartActivation, declaration *Declaration) ([]Outputs, *Error) {
	var delivered []Outputs
	for i, one := range start.GetDeliveredYields() {
		path := fmt.Sprintf("start.delivered_yields[%d]", i)
		if one.GetOrdinal() != uint64(i) {
			return nil, invalidField(path+".ordinal", "it is %d", one.GetOrdinal())
		}
		outputs := make(Outputs, len(one.GetFields()))
		for name, value := range one.GetFields() {
			at := fmt.Sprintf("%s.fields[%s]", path, name)
			field := fieldNamed(declaration.Outputs, name)
			if field == nil {
				return nil, fieldError(ReasonUnknownField, at, "%s has no such output", declaration.Name)
			}
			if failure := checkInput(at, value, field.GetType()); failure != nil {
				return nil, failure
			}
			outputs[name] = value
		}
		delivered = append(delivered, outputs)
	}
	return delivered, nil
}
