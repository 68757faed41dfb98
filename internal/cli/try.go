package cli

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

type try struct {
	*app
	gateway, callerKey, data string
	headers                  []string
}

func newTry(a *app) *cobra.Command {
	o := &try{app: a}
	c := &cobra.Command{
		Use:   "try METHOD PATH",
		Short: "Send a request to a gateway through its server, and explain a refusal",
		Long: `Send one request through the data plane of the server, and show the response; if it was
refused or failed, also why. The request is charged, counted and logged like any other,
and recorded in the audit log with its method and path. Nothing of the key, the headers
and the bodies is kept. It needs the scope write, and not the address of the gateway.`,
		Example: "  keygate try GET /orders/17 --key-file caller.key\n" +
			"  keygate try POST /orders --gateway orders --header Content-Type=application/json --data order.json --key-file - < caller.key",
		Args: atMost(2), RunE: o.run,
	}
	f := c.Flags()
	f.StringVar(&o.gateway, "gateway", "", defaultGatewayUsage)
	f.StringVar(&o.callerKey, "key-file", "", "`file` with the key of the caller, or - for standard input; without it the request has no key")
	f.StringArrayVarP(&o.headers, "header", "H", nil, "request header, as `NAME=VALUE`; may be repeated")
	f.StringVarP(&o.data, "data", "d", "", "`file` with the request body, or - for standard input")
	return c
}

func (o *try) run(c *cobra.Command, args []string) error {
	if len(args) != 2 {
		return usagef("give a method and a path, such as keygate try GET /orders")
	}
	if err := noneEmpty(c); err != nil {
		return err
	}
	in := client.TryRequest{Method: strings.ToUpper(args[0]), Path: args[1]}
	if err := o.read(&in); err != nil {
		return err
	}
	api, err := o.connectFor(&o.gateway)
	if err != nil {
		return err
	}
	r, err := api.Try(c.Context(), o.gateway, in)
	if err != nil {
		return err
	}
	if !o.ForPeople() {
		return o.PrintData(r)
	}
	return o.printTry(r)
}

// read reads the key, the headers and the body.
func (o *try) read(in *client.TryRequest) (err error) {
	if o.callerKey == "-" && o.data == "-" {
		return usagef("the key and the body cannot both come from standard input: give one of them in a file")
	}
	if in.Headers, err = pairs("header", o.headers); err != nil {
		return err
	}
	if o.callerKey != "" {
		content, err := o.ReadInput(o.callerKey)
		if err != nil {
			return fmt.Errorf("read the key: %w", err)
		}
		if in.Key = strings.TrimSpace(string(content)); in.Key == "" {
			return errors.New("there is no key in the input of --key-file: it must have the key of the caller and nothing else")
		}
	}
	if o.data != "" {
		content, err := o.ReadInput(o.data)
		if err != nil {
			return fmt.Errorf("read the body: %w", err)
		}
		in.Body = string(content)
	}
	return nil
}

// printTry prints a response as clients see it: status, headers and body. What is said about it goes to standard error.
func (o *try) printTry(r *client.Try) error {
	out := &strings.Builder{}
	fmt.Fprintln(out, strings.TrimSpace(strconv.Itoa(r.Status)+" "+http.StatusText(r.Status)))
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		for _, value := range r.Headers[name] {
			fmt.Fprintf(out, "%s: %s\n", terminal.Clean(name), terminal.Clean(value))
		}
	}
	body, err := o.bodyOf(r)
	if err != nil {
		return err
	}
	if body != "" {
		fmt.Fprintf(out, "\n%s\n", strings.TrimSuffix(body, "\n"))
	}
	if _, err := o.Out.Write([]byte(out.String())); err != nil {
		return err
	}
	if r.Truncated {
		o.Say("The body is not complete: only the first 64 KiB are shown, and what comes within 30 seconds.")
	}
	o.Say("%s took %s.", r.RequestID, terminal.Milliseconds(r.DurationMs))
	if d := r.Decision; d != nil {
		o.Say("Decided by %s: %s", why(d), d.Message)
	}
	return nil
}

// bodyOf returns the body of a response, without control characters if it is printed on a terminal.
func (o *try) bodyOf(r *client.Try) (string, error) {
	onTerminal := o.Width(o.Out) > 0
	if !r.BodyBase64 {
		if !onTerminal {
			return r.Body, nil
		}
		return strings.Map(func(r rune) rune {
			if !unicode.IsPrint(r) && r != '\n' && r != '\t' {
				return '\uFFFD'
			}
			return r
		}, r.Body), nil
	}
	content, err := base64.StdEncoding.DecodeString(r.Body)
	if err != nil {
		return "", fmt.Errorf("decode the body: %w", err)
	}
	if onTerminal {
		return fmt.Sprintf("(%d bytes that are not text)", len(content)), nil
	}
	return string(content), nil
}
