package main

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/omniflow-serving/omniflow/clients/go/role"
)

// splitter gives the words of a text one by one, each with its place in the text, from 0.
//
// Words end at white space, or at the characters of the option `separators`: {"separators": ",;"}.
type splitter struct{}

func (splitter) Declaration() role.Declaration {
	return role.Declaration{
		Name: "text.split_words",
		Inputs: role.Groups(role.Group("main",
			role.Required("text", role.TypeText),
			role.Optional("options", role.TypeJSON),
		)),
		Outputs: role.Fields(
			role.Required("word", role.TypeText),
			role.Required("index", role.TypeJSON),
		),
		IsStreaming: true,
	}
}

func (splitter) Run(_ context.Context, activation *role.Activation, yield role.Yield) error {
	separators, err := separatorsOf(activation.Inputs.JSON("options"))
	if err != nil {
		return err
	}
	index := 0
	for word := range words(activation.Inputs.Text("text"), separators) {
		if index >= len(activation.Delivered) { // an earlier attempt gave the others
			if err := yield(role.Outputs{"word": role.Text(word), "index": role.Number(float64(index))}); err != nil {
				return err
			}
		}
		index++
	}
	return nil
}

// words are what stands between the separators, without empty ones; no separators mean white space.
func words(text, separators string) iter.Seq[string] {
	if separators == "" {
		return strings.FieldsSeq(text)
	}
	return strings.FieldsFuncSeq(text, func(character rune) bool { return strings.ContainsRune(separators, character) })
}

// separatorsOf reads the options. It gives INVALID_FIELD for what is none.
func separatorsOf(options any) (string, error) {
	if options == nil {
		return "", nil
	}
	given, isObject := options.(map[string]any)
	if !isObject {
		return "", invalidOption("options", "a JSON object is wanted")
	}
	for name := range given {
		if name != "separators" {
			return "", invalidOption("options."+name, "unknown; known is separators")
		}
	}
	separators, isText := given["separators"].(string)
	if _, isGiven := given["separators"]; isGiven && !isText {
		return "", invalidOption("options.separators", "a text is wanted")
	}
	return separators, nil
}

func invalidOption(field, what string) *role.Error {
	return &role.Error{Reason: role.ReasonInvalidField, Field: field, Message: fmt.Sprintf("%s: %s", field, what)}
}
