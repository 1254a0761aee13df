package main

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/omniflow-serving/omniflow/clients/go/role"
)

func TestWordsAreWhatStandsBetweenTheSeparators(t *testing.T) {
	for _, c := range []struct {
		text, separators string
		want             []string
	}{
		{"", "", nil},
		{" \t\n", "", nil},
		{"one  two\nthree ", "", []string{"one", "two", "three"}},
		{"ein Wörtchen\u00a0noch", "", []string{"ein", "Wörtchen", "noch"}},
		{"one two,three;;four", ",;", []string{"one two", "three", "four"}},
		{",,", ",", nil},
		{"a–b", "–", []string{"a", "b"}},
	} {
		if got := slices.Collect(words(c.text, c.separators)); !slices.Equal(got, c.want) {
			t.Errorf("words of %q by %q are %q", c.text, c.separators, got)
		}
	}
}

func TestSeparatorsThatAreNoneAreNamed(t *testing.T) {
	for field, options := range map[string]any{
		"options":            "a text",
		"options.separators": map[string]any{"separators": 7.0},
		"options.other":      map[string]any{"separators": ",", "other": true},
	} {
		_, err := separatorsOf(options)
		var stated *role.Error
		if !errors.As(err, &stated) || stated.Reason != role.ReasonInvalidField || stated.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, options := range []any{nil, map[string]any{}, map[string]any{"separators": ""}} {
		if separators, err := separatorsOf(options); separators != "" || err != nil {
			t.Errorf("%v: %q, %v", options, separators, err)
		}
	}
}

func TestWordsComeWithTheirPlace(t *testing.T) {
	yields, err := role.Collect(t.Context(), splitter{}, role.Outputs{"text": role.Text("a b")})
	if err != nil {
		t.Fatal(err)
	}
	for i, word := range []string{"a", "b"} {
		if yields[i]["word"].GetText() != word || yields[i]["index"].GetJson().GetNumberValue() != float64(i) {
			t.Errorf("yield %d is %v", i, yields[i])
		}
	}
	if len(yields) != 2 {
		t.Errorf("%d yields", len(yields))
	}
}

func TestRunStopsWhenNobodyListens(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	yields, err := role.Collect(ctx, splitter{}, role.Outputs{"text": role.Text("a b c")})
	if len(yields) != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", yields, err)
	}
}
