package document

import (
	"errors"
	"math"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

type mark struct{ line, column int }

// parserState has the fields of the library's parser that stoppedAt reads.
type parserState struct {
	error        int
	problem_mark mark
}

type lastEvent struct{ start_mark mark }

type outerParser struct {
	parser parserState
	event  lastEvent
}

type fakeDecoder struct{ parser *outerParser }

// Guarantee: stoppedAt reads the position of the syntax error, or the position of the last event if
// there is no syntax error.
func TestStoppedAtReadsTheParsersPosition(t *testing.T) {
	for name, c := range map[string]struct {
		decoder any
		want    Position
	}{
		"a syntax error": {
			&fakeDecoder{&outerParser{parserState{error: 4, problem_mark: mark{2, 6}}, lastEvent{mark{0, 3}}}}, Position{3, 7},
		},
		"no syntax error": {
			&fakeDecoder{&outerParser{parserState{problem_mark: mark{2, 6}}, lastEvent{mark{0, 3}}}}, Position{1, 4},
		},
		"the library's decoder": {failedDecoder(t, "a: b: c\n"), Position{1, 5}},
	} {
		t.Run(name, func(t *testing.T) {
			if got, ok := stoppedAt(c.decoder); !ok || got != c.want {
				t.Errorf("got %v, %t; want %v, true", got, ok, c.want)
			}
		})
	}
}

func failedDecoder(t *testing.T, text string) *yaml.Decoder {
	t.Helper()
	dec := yaml.NewDecoder(strings.NewReader(text))
	if err := dec.Decode(new(yaml.Node)); err == nil {
		t.Fatalf("%q decodes; want an error", text)
	}
	return dec
}

// Guarantee: if the library's fields have other names or types, or are nil, there is no panic
// and the error has the line of the library's message.
func TestPositionWithoutTheParsersFields(t *testing.T) {
	type promoted struct{ *outerParser }     //nolint:unused // read by reflection
	type withSyntaxError struct{ error int } //nolint:unused // read by reflection
	type withoutColumn struct {
		error        int
		problem_mark struct{ line int } //nolint:unused // read by reflection
	}
	type unsigned struct {
		error        int
		problem_mark struct{ line, column uint } //nolint:unused // read by reflection
	}
	type nested[P any] struct{ parser struct{ parser P } }
	at := func(m mark) any {
		return &fakeDecoder{&outerParser{parser: parserState{error: 1, problem_mark: m}}}
	}
	columnless, wrongType := nested[withoutColumn]{}, nested[unsigned]{}
	columnless.parser.parser.error, wrongType.parser.parser.error = 1, 1
	for name, decoder := range map[string]any{
		"nil":                             nil,
		"a nil decoder":                   (*yaml.Decoder)(nil),
		"a nil parser":                    &fakeDecoder{},
		"an integer":                      7,
		"no fields":                       struct{}{},
		"a field behind a nil pointer":    promoted{},
		"a parser that is not a struct":   struct{ parser string }{},
		"no error":                        nested[struct{}]{},
		"an error that is not an integer": nested[struct{ error string }]{},
		"no event":                        nested[withSyntaxError]{},
		"no column":                       columnless,
		"unsigned positions":              wrongType,
		"a negative line":                 at(mark{-1, 0}),
		"a column that is too large":      at(mark{0, math.MaxInt32}),
	} {
		t.Run(name, func(t *testing.T) {
			if got, ok := stoppedAt(decoder); ok || got != (Position{}) {
				t.Errorf("got %v, %t; want none", got, ok)
			}
			err := yamlProblem(decoder, "a: b\n", 5, errors.New("yaml: line 3: did not find a key"))
			if want := "line 3, column 1: did not find a key"; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
			err = yamlProblem(decoder, "a: b\n", 5, errors.New("yaml: did not find a key"))
			if want := "line 1, column 1: did not find a key"; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v without a line, want %q", err, want)
			}
		})
	}
}
