package user_test

import (
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/user"
)

// Guarantee: each role has the scope of the contract and no other, and admin is above editor, above viewer.
func TestRoles(t *testing.T) {
	t.Parallel()
	for role, scope := range map[user.Role]string{user.Viewer: "read", user.Editor: "write", user.Admin: "admin", "owner": "", "": ""} {
		if got := role.Scopes().String(); got != scope || role.Valid() != (scope != "") {
			t.Errorf("%q: got the scopes %q, want %q", role, got, scope)
		}
	}
	if !user.Admin.Above(user.Editor) || !user.Editor.Above(user.Viewer) || !user.Viewer.Above("") || user.Viewer.Above(user.Viewer) {
		t.Error("the roles are not in their order")
	}
}

// Guarantee: the domain of an email is what stands behind the last @, without case, so that an @ in front cannot name
// another one.
func TestDomain(t *testing.T) {
	t.Parallel()
	for email, want := range map[string]string{
		"ada@Example.COM": "example.com", `"x@example.com"@evil.example`: "evil.example", "ada@example.com@evil.example": "evil.example",
		"ada": "", "@example.com": "", "ada@": "", "": "",
	} {
		if got := user.Domain(email); got != want {
			t.Errorf("%q: got %q, want %q", email, got, want)
		}
	}
}

// Guarantee: emails are the same but for the case of ASCII letters. Letters that only look like ASCII in another case
// do not count as it.
func TestSameEmail(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"ada@example.com", "Ada@EXAMPLE.com", true}, {"", "", false}, {"ada@example.com", "ada@example.co", false},
		{"kim@example.com", "\u212aim@example.com", false}, {"is@example.com", "ıs@example.com", false}, {"ß@example.com", "SS@example.com", false},
	} {
		if got := user.SameEmail(c.a, c.b); got != c.want {
			t.Errorf("%q and %q: got %t, want %t", c.a, c.b, got, c.want)
		}
	}
}

// Guarantee: a record has no text that a provider cannot bound: the subject is refused beyond 255 bytes or with control
// characters, and names and emails are shortened and have only characters that are shown.
func TestIdentityIsChecked(t *testing.T) {
	t.Parallel()
	for _, subject := range []string{"", strings.Repeat("s", 256), "a\x00b", "a\nb", "a\xff"} {
		i := user.Identity{Issuer: "https://login.example.com", Subject: subject}
		if i.Check() == nil {
			t.Errorf("the subject %q passes", subject)
		}
	}
	i := user.Identity{
		Issuer: "https://login.example.com", Subject: strings.Repeat("s", 255), Name: " Ada\u202e\x00\n" + strings.Repeat("é", 300),
		Email: strings.Repeat("é", 200) + "@example.com", EmailVerified: true,
	}
	if err := i.Check(); err != nil {
		t.Fatal(err)
	}
	if n := len([]rune(i.Name)); n != 255 || !strings.HasPrefix(i.Name, "Adaé") || i.Email != "" || i.EmailVerified {
		t.Errorf("got the name %q and the email %q", i.Name, i.Email)
	}
}

// Guarantee: an email is believed as a whole or not at all: nothing is cut off from it or taken out of it, by which it would
// become an email of another domain or person.
func TestEmailsAreNotChanged(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 242) + "@example.com"
	for _, email := range []string{
		long + ".evil.example", "ada@exam\u200bple.com", "ad\u00ada@example.com", "ada@example.com\x00", "ada@evil.example\n@example.com", " ada@example.com", "ada@example.com\xff",
	} {
		i := user.Identity{Issuer: "https://login.example.com", Subject: "s", Email: email, EmailVerified: true}
		if err := i.Check(); err != nil || i.Email != "" || i.EmailVerified {
			t.Errorf("%q: got %v and the email %q, verified %t; want none", email, err, i.Email, i.EmailVerified)
		}
	}
	for _, email := range []string{long, "Ada@Example.com", "äda@example.com"} {
		i := user.Identity{Issuer: "https://login.example.com", Subject: "s", Email: email, EmailVerified: true}
		if err := i.Check(); err != nil || i.Email != email || !i.EmailVerified {
			t.Errorf("%q: got %v and the email %q, verified %t", email, err, i.Email, i.EmailVerified)
		}
	}
}

// Guarantee: an invitation is for one address.
func TestEmailOfAnInvitation(t *testing.T) {
	t.Parallel()
	for _, email := range []string{"", "ada", "@example.com", "ada@", "a b@example.com", "ada@example.com\n", strings.Repeat("a", 250) + "@example.com", "a\u202eb@example.com"} {
		if user.CheckEmail("email", email) == nil {
			t.Errorf("%q passes", email)
		}
	}
	if err := user.CheckEmail("email", "ada.lovelace+keygate@example.com"); err != nil {
		t.Error(err)
	}
}

// Guarantee: a user code has 8 letters of 20, each as likely as any other, and is the same however it is typed. Nothing else is one.
func TestUserCodes(t *testing.T) {
	const letters = 20
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	counts := map[rune]int{}
	for i := range 248 / 8 {
		code, ok := user.NewUserCode(all[8*i : 8*i+8])
		if full := 8*i+8 <= 240; ok != full {
			t.Fatalf("the bytes from %d: got %q, %v", 8*i, code, ok)
		}
		for _, r := range code {
			counts[r]++
		}
		if shown := user.ShownUserCode(code); ok {
			for _, typed := range []string{code, shown, strings.ToLower(shown), " " + shown + " ", strings.Join(strings.Split(code, ""), " ")} {
				if got, ok := user.ParseUserCode(typed); !ok || got != code {
					t.Errorf("%q: got %q, %v, want %q", typed, got, ok, code)
				}
			}
		}
	}
	if len(counts) != letters {
		t.Errorf("got %d letters, want %d", len(counts), letters)
	}
	for r, n := range counts {
		if n != 240/letters {
			t.Errorf("%c: %d times, want %d", r, n, 240/letters)
		}
	}
	for _, typed := range []string{"", "BBBB-BBB", "BBBB-BBBBB", "BBBB-BBBA", "BBBB_BBBB", "ΒΒΒΒ-ΒΒΒΒ", "BBBB\nBBBB", strings.Repeat("B", 1000)} {
		if got, ok := user.ParseUserCode(typed); ok {
			t.Errorf("%q: got %q, want none", typed, got)
		}
	}
}
