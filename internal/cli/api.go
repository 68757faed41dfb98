package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

type apiCall struct {
	*app
	data, input, contentType string
	headers                  []string
}

func newAPI(a *app) *cobra.Command {
	o := &apiCall{app: a}
	c := &cobra.Command{
		Use:   "api [METHOD] PATH",
		Short: "Call the management API and print the response",
		Long: `Call the management API and print the body of the response: unchanged, but indented if
it is JSON and standard output is a terminal. -o json and --jq work too; -o yaml prints
JSON as YAML.`,
		Example: `  keygate api /v1/account
  keygate api GET '/v1/keys?state=active&limit=100'
  keygate api POST /v1/keys --data '{"name": "ci", "scope": "read"}'
  keygate api PUT /v1/gateways/gw_01j…/spec --input openapi.yaml --content-type application/yaml`,
		Args: atMost(2),
		RunE: o.run,
	}
	f := c.Flags()
	f.StringVarP(&o.data, "data", "d", "", "request `body`")
	f.StringVar(&o.input, "input", "", "`file` with the request body, or - for standard input")
	f.StringVar(&o.contentType, "content-type", "application/json", "media `type` of the body")
	f.StringArrayVarP(&o.headers, "header", "H", nil, "request header, as `'NAME: VALUE'`; may be repeated")
	return c
}

func (o *apiCall) run(c *cobra.Command, args []string) error {
	r, err := o.request(c, args)
	if err != nil {
		return err
	}
	api, err := o.connect()
	if err != nil {
		return err
	}
	res, err := api.Do(c.Context(), r)
	if err != nil {
		return err
	}
	return o.print(res.Body)
}

// print prints the body of a response: unchanged, but JSON is indented on a terminal and if
// a format was given.
func (o *apiCall) print(body []byte) error {
	isJSON := json.Valid(body)
	switch {
	case o.Filter != nil && !isJSON:
		return errors.New("the response is not JSON: --jq cannot filter it")
	case isJSON && !o.ForPeople():
		return o.PrintData(json.RawMessage(body))
	case isJSON && o.Width(o.Out) > 0:
		o.Format = terminal.FormatJSON
		return o.PrintData(json.RawMessage(body))
	default:
		_, err := o.Out.Write(body)
		return err
	}
}

func (o *apiCall) request(c *cobra.Command, args []string) (*client.Request, error) {
	hasBody := c.Flags().Changed("data") || c.Flags().Changed("input")
	r := &client.Request{Method: http.MethodGet, Header: http.Header{}, ContentType: o.contentType}
	switch len(args) {
	case 0:
		return nil, usagef("no call given: give a method and a path, such as keygate api GET /v1/keys")
	case 1:
		r.Path = args[0]
		if hasBody {
			r.Method = http.MethodPost
		}
	default:
		r.Method, r.Path = strings.ToUpper(args[0]), args[1]
	}
	if !strings.HasPrefix(r.Path, "/") {
		return nil, usagef("%q is not a path: it must begin with a slash, such as /v1/keys", r.Path)
	}
	if c.Flags().Changed("data") && c.Flags().Changed("input") {
		return nil, usagef("give --data or --input, not both")
	}
	for _, h := range o.headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return nil, usagef("--header %q must have the form 'NAME: VALUE'", h)
		}
		r.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	if hasBody {
		r.Body = []byte(o.data)
		if o.input != "" {
			content, err := o.ReadInput(o.input)
			if err != nil {
				return nil, fmt.Errorf("read the body: %w", err)
			}
			r.Body = content
		}
	}
	return r, nil
}
