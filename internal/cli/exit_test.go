package cli

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/fault"
)

// Guarantee: each kind of error has the exit status of the contract's table (section
// 8), also if it is wrapped.
func TestExitCodeOfEachError(t *testing.T) {
	status := func(n int) error { return &client.Error{Status: n, Code: "x"} }
	for _, tc := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("x"), 1},
		{os.ErrNotExist, 1},
		{usagef("x"), 2},
		{&config.Error{Origin: config.Origin{Kind: config.Flag}, Err: errors.New("x")}, 2},
		{&config.Error{Origin: config.Origin{Kind: config.File}, Err: errors.New("x")}, 1},
		{errDifferent, 3},
		{errNotValid, 1},
		{&noKeyError{"x"}, 4},
		{status(401), 4},
		{status(403), 4},
		{status(404), 5},
		{&noContextError{name: "x"}, 5},
		{&notFoundError{"x"}, 5},
		{&ambiguousError{"x"}, 6},
		{status(400), 6},
		{status(409), 6},
		{status(412), 6},
		{status(413), 6},
		{status(415), 6},
		{status(422), 6},
		{status(429), 1},
		{status(500), 1},
		{status(503), 1},
		{&client.Error{Status: 404}, 1}, // not a response of Keygate
		{&client.UnreachableError{Err: errors.New("x")}, 7},
		{fault.Invalid("name", "x"), 6},
		{fault.New(fault.Conflict, "x"), 6},
		{fault.Missing("account"), 5},
		{fault.New(fault.Unavailable, "x"), 1},
	} {
		if got := exitCode(tc.err); got != tc.want {
			t.Errorf("exitCode(%v) = %d, want %d", tc.err, got, tc.want)
		}
		if tc.err != nil {
			if got := exitCode(fmt.Errorf("wrapped: %w", tc.err)); got != tc.want {
				t.Errorf("exitCode(wrapped %v) = %d, want %d", tc.err, got, tc.want)
			}
		}
	}
}
