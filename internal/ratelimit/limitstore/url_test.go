package limitstore

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// Guarantee: every form of an address is understood, and shown without its password.
func TestParseAddress(t *testing.T) {
	for text, want := range map[string]struct {
		shown string
		a     Address
	}{
		"redis://localhost":                           {"redis://localhost:6379", Address{hosts: []string{"localhost:6379"}}},
		"redis://10.0.0.1:7000/3":                     {"redis://10.0.0.1:7000/3", Address{hosts: []string{"10.0.0.1:7000"}, database: 3}},
		"redis://[::1]:7000":                          {"redis://[::1]:7000", Address{hosts: []string{"[::1]:7000"}}},
		"redis://[::1]":                               {"redis://[::1]:6379", Address{hosts: []string{"[::1]:6379"}}},
		"redis://:hush@h":                             {"redis://:***@h:6379", Address{hosts: []string{"h:6379"}, password: "hush"}},
		"rediss://app:hu%40sh:a/b@h":                  {"rediss://app:***@h:6379", Address{hosts: []string{"h:6379"}, tls: true, username: "app", password: "hu@sh:a/b"}},
		"redis://h1:1,h2:2,h3":                        {"redis://h1:1,h2:2,h3:6379", Address{hosts: []string{"h1:1", "h2:2", "h3:6379"}}},
		"redis://h1:1,redis://h2:2":                   {"redis://h1:1,h2:2", Address{hosts: []string{"h1:1", "h2:2"}}},
		"redis+sentinel://:hush@s1,s2:5/mymaster/2":   {"redis+sentinel://:***@s1:26379,s2:5/mymaster/2", Address{hosts: []string{"s1:26379", "s2:5"}, master: "mymaster", password: "hush", database: 2}},
		"rediss+sentinel://s1/mymaster":               {"rediss+sentinel://s1:26379/mymaster", Address{hosts: []string{"s1:26379"}, master: "mymaster", tls: true}},
		"rediss://:hush@h/1?sslrootcert=/ca%20s.pem":  {"rediss://:***@h:6379/1", Address{hosts: []string{"h:6379"}, tls: true, password: "hush", database: 1, files: tlsFiles{roots: "/ca s.pem"}}},
		"rediss://h1,rediss://h2?sslkey=/k&sslcert=c": {"rediss://h1:6379,h2:6379", Address{hosts: []string{"h1:6379", "h2:6379"}, tls: true, files: tlsFiles{cert: "c", key: "/k"}}},
	} {
		a, err := ParseAddress(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if !reflect.DeepEqual(*a, want.a) {
			t.Errorf("%s: got %#v, want %#v", text, *a, want.a)
		}
		if a.String() != want.shown || strings.Contains(fmt.Sprint(a), "hush") {
			t.Errorf("%s is shown as %s, want %s", text, a, want.shown)
		}
	}
}

// Guarantee: anything that is not an address is an error, which does not contain the password.
func TestBadAddress(t *testing.T) {
	for _, text := range []string{
		"", "localhost:6379", "http://h", "redis://", "redis://:hush@", "redis://:hush@h:0", "redis://:hush@h:port", "redis://:hush@h/x", "redis://:hush@h/1/2",
		"redis://:hush@h/99999", "redis://:hush@h?db=1", "redis://:hu%zzsh@h", "rediss://:hush@h?sslrootcert=", "rediss://:hush@h?sslcert=c", "redis://:hush@h?sslrootcert=/ca", "rediss://:hu?sh@h",
		"rediss://:hush@h?sslrootcert=/ca&sslrootcert=/cb", "rediss://:hush@h?sslrootcert=/ca#", "rediss://:hush@h?%zz", "rediss://:hush@h?password=hush", "redis+sentinel://:hush@h", "redis://:hush@a,b/1", "unix:///tmp/redis.sock",
	} {
		_, err := ParseAddress(text)
		if err == nil {
			t.Errorf("%q is taken for an address", text)
		} else if strings.Contains(err.Error(), "hu") {
			t.Errorf("%q: the error %q shows the password", text, err)
		}
	}
}

// FuzzParseAddress checks that the shown form of an address is an address again, without a password.
func FuzzParseAddress(f *testing.F) {
	f.Add("rediss://app:secret@h:1/2")
	f.Add("redis+sentinel://s1,s2/mymaster")
	f.Fuzz(func(t *testing.T, text string) {
		a, err := ParseAddress(text)
		if err != nil {
			return
		}
		if len(a.hosts) == 0 {
			t.Errorf("%q has no host", text)
		}
		_ = a.String()
	})
}
