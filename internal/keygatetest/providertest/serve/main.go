// Command serve is the provider of package providertest as a process, for the tests of the dashboard. It prints a line with what
// there is to know of it, as JSON, and then reads lines of JSON: {"redirect_uri": "…"} registers one, {"claims": {…}} is who signs
// in from now on. For each it prints an empty line when that is done. It ends with its input.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/keygate/keygate/internal/keygatetest/providertest"
)

// process is a test that is a process.
type process struct{ cleanup []func() }

func (*process) Helper()            {}
func (*process) Fatal(args ...any)  { log.Fatal(args...) }
func (p *process) Cleanup(f func()) { p.cleanup = append(p.cleanup, f) }

func main() {
	t := &process{}
	p := providertest.Start(t)
	first, err := json.Marshal(map[string]string{"issuer": p.URL, "ca": string(p.CA), "client_id": providertest.ClientID, "client_secret": p.ClientSecret})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", first)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); fmt.Println() {
		var line struct {
			RedirectURI string         `json:"redirect_uri"`
			Claims      map[string]any `json:"claims"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			log.Fatal(err)
		}
		if line.RedirectURI != "" {
			p.Register(line.RedirectURI)
		}
		if line.Claims != nil {
			p.SignsIn(line.Claims)
		}
	}
	for _, f := range t.cleanup {
		f()
	}
}
