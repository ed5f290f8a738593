// SPDX-License-Identifier: Apache-2.0

package wellknown

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/treaty-node/treaty/did"
)

// Bounds on one discovery.
const (
	MaxPages  = 8  // pages of agent descriptions read
	MaxAgents = 64 // agent descriptions fetched
)

// Getter fetches a URL with GET and returns at most max bytes of body; more is an error. It must follow no redirect to
// another origin and refuse what the node may not dial: Discover hands it URLs of the asked domain only, and nothing else
// protects the network behind it.
type Getter func(ctx context.Context, url string, max int64) ([]byte, error)

// Found is an agent that a domain says it runs. Nothing about it is verified: resolve the DID, verify its document, then
// [AgentDescription.Verify] and [VerifyCard].
type Found struct {
	DID         did.DID // its domain is the asked one
	URL         string  // of the agent description
	Description *AgentDescription
}

// Skipped is something a discovery met and did not use.
type Skipped struct {
	URL    string
	Reason error
}

// Discovery is what a domain publishes about its agents, in the order it lists them.
type Discovery struct {
	Agents  []Found
	Skipped []Skipped
	More    bool // the domain lists more than was read
}

// Discover reads a domain's /.well-known/agent-descriptions (ANP-08) and the agent descriptions it points to. domain is a
// host name, with ":port" where it is not 443. Only URLs of that very origin are fetched and only DIDs of that very domain
// are taken; everything else is reported as skipped. At most MaxPages pages and MaxAgents descriptions are read, pages that
// lead in a circle end the reading. The error is that of the domain's name or of the first page; later trouble is Skipped.
func Discover(ctx context.Context, get Getter, domain string) (*Discovery, error) {
	bare, err := did.Parse("did:wba:" + strings.ReplaceAll(domain, ":", "%3A"))
	if err != nil || len(bare.Path()) != 0 {
		return nil, fmt.Errorf("%w: %q is not a domain", ErrSpec, clip(domain))
	}
	origin := "https://" + bare.Domain()
	out := &Discovery{}
	seen := map[string]bool{}
	skip := func(where string, reason error) {
		if len(out.Skipped) < MaxPages+MaxAgents {
			out.Skipped = append(out.Skipped, Skipped{URL: clip(where), Reason: reason})
		}
	}
	next := origin + PathDescriptions
	for pages := 0; next != ""; pages++ {
		if pages == MaxPages {
			out.More = true
			break
		}
		seen[next] = true
		page, err := getPage(ctx, get, next)
		if err != nil {
			if pages == 0 {
				return nil, err
			}
			skip(next, err)
			break
		}
		for _, item := range page.Items {
			if err := ctx.Err(); err != nil {
				return out, err
			}
			if seen[item.ID] {
				continue
			}
			if !sameOrigin(item.ID, origin) {
				skip(item.ID, fmt.Errorf("%w: agent description of another origin", ErrMalformed))
				continue
			}
			if len(out.Agents)+len(out.Skipped) >= MaxAgents {
				out.More = true
				return out, nil
			}
			seen[item.ID] = true
			found, err := getAgent(ctx, get, item.ID, bare.Domain())
			if err != nil {
				skip(item.ID, err)
				continue
			}
			out.Agents = append(out.Agents, *found)
		}
		next = page.Next
		if next != "" && (seen[next] || !sameOrigin(next, origin)) {
			skip(next, fmt.Errorf("%w: next page is of another origin or was read before", ErrMalformed))
			break
		}
	}
	return out, nil
}

func getPage(ctx context.Context, get Getter, where string) (*Page, error) {
	raw, err := get(ctx, where, MaxPageBytes)
	if err != nil {
		return nil, fmt.Errorf("agent descriptions: %w", err)
	}
	return ParseDescriptions(raw)
}

func getAgent(ctx context.Context, get Getter, where, domain string) (*Found, error) {
	raw, err := get(ctx, where, MaxDescriptionBytes)
	if err != nil {
		return nil, fmt.Errorf("agent description: %w", err)
	}
	ad, err := ParseAgentDescription(raw)
	if err != nil {
		return nil, err
	}
	id, err := did.Parse(ad.DID)
	if err != nil {
		return nil, fmt.Errorf("agent description: %w", err)
	}
	if id.Domain() != domain {
		return nil, fmt.Errorf("%w: %s is no agent of %s", ErrWrongAgent, id, domain)
	}
	return &Found{DID: id, URL: where, Description: ad}, nil
}

// sameOrigin says whether a URL is an absolute https URL below the given origin, spelled exactly so.
func sameOrigin(where, origin string) bool {
	rest, ok := strings.CutPrefix(where, origin+"/")
	if !ok || strings.ContainsAny(rest, "#\\ ") {
		return false
	}
	u, err := url.Parse(where)
	return err == nil && u.User == nil && "https://"+u.Host == origin
}
