package role

import (
	"context"

	graph "github.com/omniflow-serving/omniflow/clients/go/gen/graph/v1"
	rolev1 "github.com/omniflow-serving/omniflow/clients/go/gen/role/v1"
)

// Collect runs an interface once without a role, for tests of interfaces. The inputs are one value for each field of its
// first input group.
//
// It returns the yields, and the error of Run as it is. Inputs and yields are checked as a role does.
func Collect(ctx context.Context, target Interface, inputs map[string]*Value) ([]Outputs, error) {
	declaration := target.Declaration()
	facet := &rolev1.Facet{Fields: make(map[string]*rolev1.FieldValues)}
	if len(declaration.Inputs) > 0 {
		facet.InputGroup = declaration.Inputs[0].GetName()
	}
	for name, value := range inputs {
		facet.Fields[name] = &rolev1.FieldValues{Values: []*rolev1.FieldValue{{Value: value}}}
	}
	given, failure := readInputs(&rolev1.StartActivation{Facets: []*rolev1.Facet{facet}}, &declaration)
	if failure != nil {
		return nil, failure
	}
	activation := &Activation{
		Inputs: given, CallID: "call", Node: "node", ID: 1, Attempt: 1, Tenant: "default", Usage: new(graph.Usage),
	}
	var yields []Outputs
	err := target.Run(ctx, activation, func(outputs Outputs) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if failure := checkOutputs(outputs, &declaration); failure != nil {
			return failure
		}
		yields = append(yields, outputs)
		return nil
	})
	return yields, err
}
