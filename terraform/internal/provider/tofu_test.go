package provider

import (
	"archive/zip"
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/keygatetest"
)

// tofuPath is the path of OpenTofu's program, which make tofu builds.
var tofuPath = flag.String("tofu", "", "`program` of OpenTofu or Terraform, to run the example with; empty means not to")

// Guarantee: OpenTofu applies the example, finds nothing to do afterwards, puts right what somebody else has changed, imports what
// exists, and destroys it all. No secret is in a state or plan, or is printed or logged. A plan with a wrong value fails, at the
// attribute.
func TestOpenTofu(t *testing.T) {
	if *tofuPath == "" {
		t.Skip("-tofu names no program of OpenTofu; make tofu builds it, and runs this test")
	}
	const signingSecret = "0123456789abcdef-signing"
	keys := keygatetest.Start(t)
	dir := t.TempDir()
	content, err := os.ReadFile("../../examples/shop/main.tf")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "main.tf"), string(content))
	plugins := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(plugins, "terraform-provider-keygate"), "../..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	config, log := filepath.Join(plugins, "tofu.rc"), filepath.Join(plugins, "log")
	write(t, config, fmt.Sprintf("provider_installation {\n  dev_overrides {\n    \"keygate/keygate\" = %q\n  }\n  direct {}\n}\n", plugins))
	tofu := func(wanted int, args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, *tofuPath, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "TF_CLI_CONFIG_FILE="+config, "TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1", "TF_LOG=TRACE", "TF_LOG_PATH="+log,
			"KEYGATE_URL="+keys.AdminURL(), "KEYGATE_API_KEY="+keys.AdminKey, "TF_VAR_signing_secret="+signingSecret)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != wanted {
			t.Fatalf("tofu %s: %v, want status %d\n%s", strings.Join(args, " "), err, wanted, out)
		}
		return string(out)
	}

	printed := tofu(0, "plan", "-no-color", "-out", "first.plan")
	printed += tofu(0, "apply", "-no-color", "first.plan")
	printed += tofu(0, "plan", "-no-color", "-detailed-exitcode")
	key, err := os.ReadFile(filepath.Join(dir, "acme.key"))
	if err != nil {
		t.Fatal(err)
	}
	state, err := os.ReadFile(filepath.Join(dir, "terraform.tfstate"))
	if err != nil {
		t.Fatal(err)
	}
	printed += tofu(0, "show", "-no-color", "first.plan") + tofu(0, "show", "-json", "first.plan")
	plan := unzipped(t, filepath.Join(dir, "first.plan"))
	logged, err := os.ReadFile(log)
	if err != nil || !strings.Contains(string(logged), "keygate_webhook") {
		t.Fatalf("the log has nothing of the provider: %v", err)
	}
	for name, secret := range map[string]string{"the key": strings.TrimSpace(string(key)), "the signing secret": signingSecret, "the provider's key": keys.AdminKey} {
		for where, content := range map[string]string{"the state": string(state), "the plan": plan, "what was printed": printed, "the log": string(logged)} {
			if strings.Contains(content, secret) {
				t.Errorf("%s is in %s", name, where)
			}
		}
	}

	gatewayID := strings.TrimSpace(tofu(0, "output", "-raw", "gateway_id"))
	if _, err := keys.Admin.UpdateGateway(t.Context(), gatewayID, client.GatewayPatch{Timeout: client.Set("45s")}); err != nil {
		t.Fatal(err)
	}
	tofu(2, "plan", "-no-color", "-detailed-exitcode")
	tofu(0, "apply", "-no-color", "-auto-approve")
	if got, err := keys.Admin.Gateway(t.Context(), gatewayID); err != nil || got.Timeout != "30s" {
		t.Errorf("the timeout is %v, %v, want 30s", got.Timeout, err)
	}

	// A setting that is configured no more gets its default.
	write(t, filepath.Join(dir, "main.tf"), strings.Replace(string(content), "  timeout      = \"30s\"\n", "", 1))
	tofu(0, "apply", "-no-color", "-auto-approve")
	tofu(0, "plan", "-no-color", "-detailed-exitcode")
	if got, err := keys.Admin.Gateway(t.Context(), gatewayID); err != nil || got.Timeout != "60s" {
		t.Errorf("the timeout is %v, %v, want the default, 60s", got.Timeout, err)
	}

	write(t, filepath.Join(dir, "main.tf"), strings.Replace(string(content), "100000/month", "100000/eon", 1))
	if out := tofu(1, "plan", "-no-color"); !strings.Contains(strings.Join(strings.Fields(out), " "), "limits[0].quota must be a quota") {
		t.Errorf("a plan with a wrong quota prints %s", out)
	}
	write(t, filepath.Join(dir, "main.tf"), string(content))
	tofu(0, "state", "rm", "keygate_plan.basic")
	plans := keys.Call("GET", "/v1/plans", keys.AdminKey, "").Body
	_, id, _ := strings.Cut(plans, `"plan_id":"`)
	id, _, _ = strings.Cut(id, `"`)
	tofu(0, "import", "-no-color", "keygate_plan.basic", id)
	tofu(0, "plan", "-no-color")
	tofu(0, "destroy", "-no-color", "-auto-approve")
	if got := keys.Call("GET", "/v1/gateways", keys.AdminKey, "").Body; strings.Contains(got, gatewayID) {
		t.Errorf("after it was destroyed, there is still %s", got)
	}
}

// unzipped returns the contents of the files of an archive, as a saved plan is one.
func unzipped(t *testing.T, name string) string {
	t.Helper()
	archive, err := zip.OpenReader(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = archive.Close() }()
	var all strings.Builder
	for _, f := range archive.File {
		content, err := fs.ReadFile(archive, f.Name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(content)
	}
	return all.String()
}

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
