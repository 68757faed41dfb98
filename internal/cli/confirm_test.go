package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keygate/keygate/client"
)

// Guarantee: on a terminal, commands that destroy say what will be lost and ask. Any answer
// but the right one cancels with exit status 1 and destroys nothing.
func TestDestroyingAsksOnATerminal(t *testing.T) {
	s, g := busyServer(t)
	if _, err := s.Admin.CreateKey(t.Context(), client.CreateKeyRequest{Name: "k", Scope: "read", GatewayID: &g}); err != nil {
		t.Fatal(err)
	}
	first := func(args ...string) string {
		t.Helper()
		id, _, _ := strings.Cut(show(t, s, nil, append(args, "-o", "id", "--limit", "1")...), "\n")
		return id
	}
	owned := show(t, s, nil, "keys", "list", "--query", "mobile", "-o", "id")
	for _, test := range []struct {
		args   []string
		answer string
		wants  []string
		asked  string
		yes    bool
		says   string
	}{
		{[]string{"webhooks", "delete", first("webhooks", "list")}, "", []string{"This deletes webhook http", "pending deliver"}, "Delete it? [y/N] ", true, "Deleted webhook http"},
		{[]string{"keys", "revoke", strings.TrimSpace(owned)}, "", []string{"This revokes key mobile app of the shop (key_", "its owner is customer-1702@shop.example", "2 requests in the last 24 hours"}, "Revoke it? [y/N] ", true, "Revoked key mobile app of the shop (key_"},
		{[]string{"routes", "delete", "--gateway", g, first("routes", "list", g)}, "", []string{"This deletes route ", "in the last 24 hours"}, "Delete it? [y/N] ", true, "Deleted route "},
		{[]string{"gateways", "delete", g}, "orders-and-customers", []string{"This deletes gateway orders-and-customers (" + g + ")", "1 route\n", "1 key that is restricted to it and will be revoked", "4 requests in the last 24 hours"}, "Type its name to confirm: ", false, "Deleted gateway orders-and-customers (" + g + ")."},
	} {
		name := strings.Join(test.args, " ")
		no := []string{"\n", "n\n", "nonsense\n", "\x04"}
		if !test.yes {
			no = append(no, "y\n", strings.ToUpper(test.answer)+"\n")
		}
		for _, answer := range no {
			status, screen := answerTo(t, s, answer, test.args...)
			if status != 1 || !strings.HasSuffix(screen, "Cancelled.\n") {
				t.Errorf("%s, answer %q: exit status %d\n%s", name, answer, status, screen)
			}
			for _, want := range append(test.wants, test.asked) {
				if !strings.Contains(screen, want) {
					t.Errorf("%s lacks %q:\n%s", name, want, screen)
				}
			}
		}
		if test.yes {
			test.answer = "Y"
		}
		status, screen := answerTo(t, s, test.answer+"\n", test.args...)
		if status != 0 || !strings.Contains(screen, test.says) || strings.Contains(screen, "CREATED") {
			t.Errorf("%s: exit status %d\n%s", name, status, screen)
		}
	}
}

// Guarantee: --yes destroys without a question.
func TestYesSkipsTheQuestion(t *testing.T) {
	s, g := busyServer(t)
	if screen := show(t, s, nil, "gateways", "delete", g, "--yes"); screen != "Deleted gateway orders-and-customers ("+g+").\n" {
		t.Errorf("showed %q", screen)
	}
}

// Guarantee: the lookups for the question do not hide that no record has this identifier.
func TestDestroyingNothingIsNotFound(t *testing.T) {
	s, g := busyServer(t)
	for _, args := range [][]string{
		{"gateways", "delete", "gw_00000000000000000000000000"}, {"keys", "revoke", "key_00000000000000000000000000"},
		{"routes", "delete", "--gateway", g, "rt_00000000000000000000000000"}, {"webhooks", "delete", "wh_00000000000000000000000000"},
	} {
		if status, screen := answerTo(t, s, "y\n", args...); status != 5 {
			t.Errorf("%v: exit status %d, want 5\n%s", args, status, screen)
		}
	}
}

// Guarantee: a number that is not the end of a bounded count is given exactly, however large it is.
func TestValidateGivesTheExactNumberOfRoutes(t *testing.T) {
	for _, n := range []int{1, 1000, 1001} {
		var file strings.Builder
		file.WriteString("routes:\n")
		for i := range n {
			fmt.Fprintf(&file, "- {path: /r%d, methods: [GET]}\n", i)
		}
		path := filepath.Join(t.TempDir(), "orders.yaml")
		if err := os.WriteFile(path, []byte(file.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("is valid: %d routes.", n)
		if n == 1 {
			want = "is valid: 1 route."
		}
		if status, _, says := runWith(t, nil, "config", "validate", path); status != 0 || !strings.Contains(says, want) {
			t.Errorf("%d routes: exit status %d, %q, want 0 and %q", n, status, says, want)
		}
	}
}

// Guarantee: an unusual method is a warning with the method that was probably meant, when a route is created or
// changed, and when a file is validated.
func TestUnusualMethodsAreWarnedOf(t *testing.T) {
	s, g := busyServer(t)
	const want = "POSTT is not a usual method: did you mean POST?\n"
	created := show(t, s, nil, "routes", "create", "--gateway", g, "--path", "/x", "--method", "POSTT")
	changed := show(t, s, nil, "routes", "update", "--gateway", g, "POSTT /x", "--path", "/y")
	if !strings.Contains(created, "warning: "+want) || !strings.Contains(changed, "warning: "+want) {
		t.Errorf("got\n%s\n%s\nwant %q in both", created, changed, want)
	}
	path := filepath.Join(t.TempDir(), "orders.yaml")
	if err := os.WriteFile(path, []byte("routes: [{path: /a, methods: [POSTT]}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, _, says := runWith(t, nil, "config", "validate", path); status != 0 || !strings.Contains(says, "warning: "+path+": routes[0].methods (/a) "+want) {
		t.Errorf("exit status %d, %q, want 0 and %q", status, says, want)
	}
}
