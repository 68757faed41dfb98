package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
	"github.com/keygate/keygate/internal/gateway"
)

// costFlag is the flag --cost: a file with the cost of a route.
type costFlag struct {
	file string
	cost []client.Cost // of the file
}

func (o *costFlag) add(f *pflag.FlagSet, removes string) {
	f.StringVar(&o.file, "cost", "", "`file` with what a request costs, a list in YAML or JSON, or - for standard input"+removes)
}

// read reads the file, if one was given.
func (o *costFlag) read(a *app) error {
	if o.file == "" {
		return nil
	}
	rules, err := readPart(a, o.file, gateway.ParseCost)
	if err != nil {
		return err
	}
	return json.Unmarshal(rules.AppendJSON(nil), &o.cost)
}

// change returns the change of the cost. An empty flag, and a file with an empty list, remove it.
func (o *costFlag) change(c *cobra.Command) client.Change[[]client.Cost] {
	switch {
	case !c.Flags().Changed("cost"):
		return client.Change[[]client.Cost]{}
	case len(o.cost) == 0:
		return client.Clear[[]client.Cost]()
	}
	return client.Set(o.cost)
}

// costFields returns a line for each cost of a route.
func costFields(costs []client.Cost) (fields []terminal.Field) {
	for i := range costs {
		fields = append(fields, terminal.Field{"COST " + costs[i].Meter, costText(&costs[i])})
	}
	return fields
}

// costsText returns the costs of a route on one line.
func costsText(costs []client.Cost) string {
	parts := make([]string, len(costs))
	for i := range costs {
		parts[i] = costs[i].Meter + " " + costText(&costs[i])
	}
	return strings.Join(parts, "; ")
}

// costText returns a cost on one line, without its meter: "usage.total_tokens × 1, max 16000, reserve 2000".
func costText(c *client.Cost) string {
	var parts []string
	most, reserve := c.Max, c.Reserve
	switch f := &c.From; {
	case f.Request != nil:
		parts = append(parts, strconv.FormatInt(*f.Request, 10))
		if most != nil && *most == *f.Request {
			most = nil
		}
		if reserve != nil && *reserve == *f.Request {
			reserve = nil
		}
	case f.Header != "":
		parts = append(parts, "header "+f.Header)
		if f.Expose {
			parts = append(parts, "exposed")
		}
	default:
		parts = append(parts, fieldsText(f.JSON))
		for _, value := range slices.Sorted(maps.Keys(f.Prices)) {
			parts = append(parts, fmt.Sprintf("%s %s: %s", f.By, value, fieldsText(f.Prices[value])))
		}
	}
	if most != nil {
		parts = append(parts, "max "+strconv.FormatInt(*most, 10))
	}
	if reserve != nil {
		parts = append(parts, "reserve "+strconv.FormatInt(*reserve, 10))
	}
	switch u := c.Unknown; {
	case u == nil:
	case u.Fallback != "":
		parts = append(parts, "unknown "+u.Fallback)
	case u.BytesIn != 0:
		parts = append(parts, "unknown bytes_in × "+weightText(u.BytesIn))
	default:
		parts = append(parts, "unknown bytes_out × "+weightText(u.BytesOut))
	}
	return strings.Join(parts, ", ")
}

// fieldsText returns fields of a response with their weights, as in "a × 1 + b × 4".
func fieldsText(fields map[string]float64) string {
	parts := make([]string, 0, len(fields))
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		parts = append(parts, name+" × "+weightText(fields[name]))
	}
	return strings.Join(parts, " + ")
}

func weightText(w float64) string { return strconv.FormatFloat(w, 'f', -1, 64) }

// costChangeText returns the cost of a route in a list of changes; "" if the value is none.
func costChangeText(value any) string {
	if _, isList := value.([]any); !isList {
		return ""
	}
	text, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	var costs []client.Cost
	if json.Unmarshal(text, &costs) != nil {
		return ""
	}
	return costsText(costs)
}
