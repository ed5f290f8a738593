// SPDX-License-Identifier: Apache-2.0

package wellknown

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/treaty-node/treaty/did"
)

// Document is one public document: bytes at a path.
type Document struct {
	Path string
	Page int // 0: the document at Path; n > 1: what ?page=n selects there
	Body []byte
}

// DIDDocument places a DID document at the path its id asks for (ANP-03). The document is not verified again.
func DIDDocument(raw []byte) (Document, error) {
	doc, err := did.ParseDocument(raw)
	if err != nil {
		return Document{}, err
	}
	return atURL(doc.ID().DocumentURL(), raw)
}

// CardDocument places an agent card at its well-known path.
func CardDocument(card []byte) Document { return Document{Path: PathAgentCard, Body: card} }

func atURL(where string, raw []byte) (Document, error) {
	u, err := url.Parse(where)
	if err != nil || u.Path == "" {
		return Document{}, fmt.Errorf("%w: document has no address", ErrSpec)
	}
	return Document{Path: u.Path, Body: raw}, nil
}

// Site serves public documents: exact bytes, a strong ETag, an age, conditional requests. It is an http.Handler, holds no
// mutable state, and is safe for concurrent use; publish changed documents by replacing it.
type Site struct {
	docs  map[site]served
	paths []string
	cache string
}

type site struct {
	path string
	page int
}

type served struct {
	body []byte
	etag string
}

// NewSite builds a site. maxAge is what caches are told, in whole seconds; DID documents should not be told more than five
// minutes. Two documents at one address are ErrSpec.
func NewSite(maxAge time.Duration, docs ...Document) (*Site, error) {
	s := &Site{docs: make(map[site]served), cache: "public, max-age=" + strconv.Itoa(int(maxAge/time.Second))}
	for _, d := range docs {
		key := site{d.Path, max(d.Page, 1)}
		if !strings.HasPrefix(d.Path, "/") || len(d.Body) == 0 {
			return nil, fmt.Errorf("%w: document at %q", ErrSpec, d.Path)
		}
		if _, taken := s.docs[key]; taken {
			return nil, fmt.Errorf("%w: two documents at %q", ErrSpec, d.Path)
		}
		sum := sha256.Sum256(d.Body)
		s.docs[key] = served{
			body: append([]byte(nil), d.Body...),
			etag: `"` + base64.RawURLEncoding.EncodeToString(sum[:]) + `"`,
		}
		if key.page == 1 {
			s.paths = append(s.paths, d.Path)
		}
	}
	sort.Strings(s.paths)
	return s, nil
}

// Paths lists where the site answers, sorted.
func (s *Site) Paths() []string { return append([]string(nil), s.paths...) }

// Has says whether there is a document at the path.
func (s *Site) Has(path string) bool {
	_, ok := s.docs[site{path, 1}]
	return ok
}

// ServeHTTP implements http.Handler for GET and HEAD.
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Access-Control-Allow-Origin", "*") // public by definition, and no credentials change what is served
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	page := 1
	if v := r.URL.Query().Get("page"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 {
			http.Error(w, "no such page", http.StatusNotFound)
			return
		}
		page = n
	}
	doc, ok := s.docs[site{r.URL.Path, page}]
	if !ok {
		http.NotFound(w, r)
		return
	}
	h.Set("ETag", doc.etag)
	h.Set("Cache-Control", s.cache)
	if matches(r.Header.Values("If-None-Match"), doc.etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(doc.body)))
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodGet {
		_, _ = w.Write(doc.body)
	}
}

// matches applies If-None-Match: weak comparison (RFC 9110 section 13.1.2).
func matches(headers []string, etag string) bool {
	for _, h := range headers {
		for _, tag := range strings.Split(h, ",") {
			tag = strings.TrimSpace(tag)
			if tag == "*" || strings.TrimPrefix(tag, "W/") == etag {
				return true
			}
		}
	}
	return false
}
