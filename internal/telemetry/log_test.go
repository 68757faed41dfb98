package telemetry_test

import (
	"bytes"
	"log"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/telemetry"
)

// Guarantee: what other packages write with the standard library's log has the format and the level of the log, and its
// texts are cleaned like all others.
func TestStandardLogIsTaken(t *testing.T) {
	for _, tc := range []struct{ level, want string }{
		{"info", ""},
		{"debug", `"level":"DEBUG","msg":"unasked bytes"`},
	} {
		var to bytes.Buffer
		restore := telemetry.TakeStandardLog(telemetry.NewLogger(&to, tc.level, "json"))
		log.Print("unasked bytes")
		restore()
		if got := to.String(); !strings.Contains(got, tc.want) || tc.want == "" && got != "" {
			t.Errorf("level %s: got %q, want %q", tc.level, got, tc.want)
		}
	}
}
