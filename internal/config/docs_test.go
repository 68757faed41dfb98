package config_test

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/keygate/keygate/internal/config"
)

// Guarantee: docs/configuration.md lists every setting of this version with its default,
// and names those that this version does not have.
func TestGuideListsEverySetting(t *testing.T) {
	content, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	config.Register(fs)
	fs.VisitAll(func(f *pflag.Flag) {
		want := "| `--" + f.Name + "` | `" + f.DefValue + "` |"
		switch {
		case f.Hidden, f.Name == "config":
			want = "`--" + f.Name + "`"
		case f.Name == "secret-key-file":
			want = "| `--secret-key-file` | `<data-dir>/secret.key` |"
		case f.DefValue == "[]", f.DefValue == "":
			want = "| `--" + f.Name + "` | none |"
		}
		if !strings.Contains(string(content), want) {
			t.Errorf("docs/configuration.md does not contain %s", want)
		}
	})
}
