package helm

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// helmPath is the path of Helm's program, with which the tests compare, if it is installed.
var helmPath = flag.String("helm", "helm", "`program` of Helm")

// helm returns a function that runs Helm in this folder.
func helm(t *testing.T) func(arguments ...string) (string, error) {
	t.Helper()
	path, err := exec.LookPath(*helmPath)
	if err != nil {
		t.Skip("helm is not installed: make chart builds it, and runs this test")
	}
	home := t.TempDir()
	return func(arguments ...string) (string, error) {
		c := exec.CommandContext(t.Context(), path, arguments...)
		c.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home, "KUBECONFIG="+filepath.Join(home, "none"))
		out, err := c.CombinedOutput()
		return string(out), err
	}
}

// Guarantee: Helm accepts the chart, and renders the same objects as these tests do.
func TestHelmRendersTheSame(t *testing.T) {
	t.Parallel()
	run := helm(t)
	paths, err := filepath.Glob("testdata/values/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if out, err := run("lint", "--strict", chartDir, "--values", path); err != nil {
			t.Errorf("helm lint with %s: %v\n%s", path, err, out)
		}
		out, err := run("template", "prod", chartDir, "--namespace", "keygate", "--kube-version", "1.37.0", "--values", path)
		if err != nil {
			t.Errorf("helm template with %s: %v\n%s", path, err, out)
			continue
		}
		theirs := map[string]object{}
		for _, o := range decode(t, path, out) {
			theirs[fmt.Sprintf("%s/%s", o["kind"], at(o, "metadata", "name"))] = o
		}
		ours := objects(t, release{values: readYAML(t, path)})
		for _, all := range []map[string]object{theirs, ours} {
			if secret := all["Secret/prod-keygate-secret-key"]; secret != nil {
				delete(secret, "data") // a new one each time
			}
		}
		if !maps.EqualFunc(ours, theirs, func(a, b object) bool { return reflect.DeepEqual(a, b) }) {
			t.Errorf("%s: Helm makes other objects:\n%v\nwant\n%v", path, theirs, ours)
		}
	}
}

// Guarantee: Helm refuses wrong values with the message of the chart, and can package it.
func TestHelmRefusesWrongValues(t *testing.T) {
	t.Parallel()
	run := helm(t)
	for values, want := range map[string]string{
		"replicas=2":                    "replicas: more than one node needs a PostgreSQL database",
		"config.drain_delay=5s":         "config.drain_delay: set drain.delaySeconds",
		"config.gateway-domain=example": "at '/config': additional properties 'gateway-domain' not allowed",
	} {
		if out, err := run("template", "prod", chartDir, "--kube-version", "1.37.0", "--set", values); err == nil || !strings.Contains(out, want) {
			t.Errorf("with %s Helm says %v\n%s\nwant %q", values, err, out, want)
		}
	}
	if out, err := run("package", chartDir, "--destination", t.TempDir()); err != nil {
		t.Errorf("helm package: %v\n%s", err, out)
	}
}
