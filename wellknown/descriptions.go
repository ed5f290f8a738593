// SPDX-License-Identifier: Apache-2.0

package wellknown

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/treaty-node/treaty/did/canon"
)

// Bounds on a received page of agent descriptions.
const (
	MaxPageBytes = 256 << 10
	maxPageItems = 256
)

// Item points to one agent description (ANP-08).
type Item struct {
	Type string `json:"@type"`
	Name string `json:"name,omitempty"`
	ID   string `json:"@id"` // URL of the agent description
}

// Page is one page of the agents of a domain.
type Page struct {
	Context json.RawMessage `json:"@context,omitempty"`
	Type    string          `json:"@type"`
	URL     string          `json:"url,omitempty"`
	Items   []Item          `json:"items"`
	Next    string          `json:"next,omitempty"`
}

const pageContext = `{"@vocab":"https://schema.org/","ad":"https://agent-network-protocol.com/ad#","did":"https://w3id.org/did#"}`

// DescriptionPages builds the pages of /.well-known/agent-descriptions for a domain's public agents, size items a page
// (1 to 256). There is always a first page. Error: ErrSpec.
func DescriptionPages(origin string, items []Item, size int) ([]Document, error) {
	if err := checkOrigin(origin); err != nil {
		return nil, err
	}
	if size < 1 || size > maxPageItems {
		return nil, fmt.Errorf("%w: page size %d", ErrSpec, size)
	}
	address := func(page int) string {
		if page == 1 {
			return origin + PathDescriptions
		}
		return origin + PathDescriptions + "?page=" + strconv.Itoa(page)
	}
	var docs []Document
	for number := 1; number == 1 || len(items) > 0; number++ {
		n := min(size, len(items))
		page := Page{Context: json.RawMessage(pageContext), Type: "CollectionPage", URL: address(number), Items: []Item{}}
		for _, item := range items[:n] {
			if checkURL(item.ID) != nil {
				return nil, fmt.Errorf("%w: agent description URL %q", ErrSpec, item.ID)
			}
			item.Type = "ad:AgentDescription"
			page.Items = append(page.Items, item)
		}
		items = items[n:]
		if len(items) > 0 {
			page.Next = address(number + 1)
		}
		body, err := canon.Marshal(page)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrSpec, err)
		}
		docs = append(docs, Document{Path: PathDescriptions, Page: number, Body: body})
	}
	return docs, nil
}

// ParseDescriptions reads one received page. The type of the page must be CollectionPage; items of other types than
// AgentDescription and items without an address are left out. Errors: canon's, ErrMalformed, ErrTooMany.
func ParseDescriptions(raw []byte) (*Page, error) {
	var p Page
	if err := canon.UnmarshalOpen(raw, &p, canon.Limits{MaxBytes: MaxPageBytes, MaxDepth: 16}); err != nil {
		return nil, fmt.Errorf("agent descriptions: %w", err)
	}
	if p.Type != "CollectionPage" {
		return nil, fmt.Errorf("%w: agent descriptions of type %q", ErrMalformed, clip(p.Type))
	}
	if len(p.Items) > maxPageItems {
		return nil, fmt.Errorf("agent descriptions: %w", ErrTooMany)
	}
	kept := p.Items[:0]
	for _, item := range p.Items {
		if item.ID != "" && (item.Type == "ad:AgentDescription" || item.Type == "AgentDescription") {
			kept = append(kept, item)
		}
	}
	p.Items = kept
	return &p, nil
}
