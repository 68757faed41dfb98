package cost

import "github.com/keygate/keygate/internal/document"

// Cache reads the rules of one document. Equal texts and YAML aliases share their rules, so that many routes with one cost
// take the time and the memory of one. The zero value is empty.
type Cache struct {
	nodes map[*document.Node]Rules // by the first rule: aliases share nodes
	texts map[string]Rules
}

// Read is the function Read.
func (c *Cache) Read(n *document.Node) (Rules, error) {
	if len(n.Nodes) > 0 {
		if rules, known := c.nodes[&n.Nodes[0]]; known {
			return rules, nil
		}
	}
	rules, err := Read(n)
	if err != nil || len(rules) == 0 {
		return nil, err
	}
	if c.nodes == nil {
		c.nodes, c.texts = map[*document.Node]Rules{}, map[string]Rules{}
	}
	text := string(rules.AppendJSON(nil))
	if same, known := c.texts[text]; known {
		rules = same
	}
	c.texts[text], c.nodes[&n.Nodes[0]] = rules, rules
	return rules, nil
}
