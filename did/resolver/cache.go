// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/treaty-node/treaty/did"
)

// entry is a finished look-up: a result, or the reason why there is none.
type entry struct {
	result *Result
	err    *Error
	from   time.Time // not served before: the clock may have been set back
	until  time.Time // not served from then on
	size   int       // of the document, 0 without one
}

// weight estimates the memory: a document is held as received, in canonical form
// and parsed.
func (e *entry) weight() int64 { return 4*int64(e.size) + 1024 }

// cache keeps finished look-ups, documents and failures apart, so that strangers
// who name DIDs that do not exist push nobody's document out. The caller locks.
type cache struct {
	docs     *simplelru.LRU[did.DID, *entry]
	failures *simplelru.LRU[did.DID, *entry]
	weight   int64 // of docs
	most     int64
}

func newCache(entries int, bytes int64) *cache {
	c := &cache{most: bytes}
	var err error
	c.docs, err = simplelru.NewLRU(entries, func(_ did.DID, e *entry) { c.weight -= e.weight() })
	if err != nil {
		panic(err) // only for a size that is not positive
	}
	c.failures, err = simplelru.NewLRU[did.DID, *entry](min(entries, 4096), nil)
	if err != nil {
		panic(err)
	}
	return c
}

func (c *cache) get(id did.DID, now time.Time) *entry {
	for _, lru := range [...]*simplelru.LRU[did.DID, *entry]{c.docs, c.failures} {
		if e, ok := lru.Get(id); ok {
			if !now.Before(e.from) && now.Before(e.until) {
				return e
			}
			lru.Remove(id)
		}
	}
	return nil
}

// put remembers e, which it may share with those who wait for it now.
func (c *cache) put(id did.DID, e *entry) {
	c.drop(id)
	if e.size == 0 {
		e = &entry{err: e.err.remembered(), from: e.from, until: e.until}
		c.failures.Add(id, e)
		return
	}
	c.docs.Add(id, e)
	c.weight += e.weight()
	for c.weight > c.most && c.docs.Len() > 1 {
		c.docs.RemoveOldest()
	}
}

func (c *cache) drop(id did.DID) {
	c.docs.Remove(id)
	c.failures.Remove(id)
}

// lifetime is how long the server lets an answer be reused (RFC 9111, sections
// 4.2.1 and 5.2.2), at most most. Anything unclear means not at all. s-maxage is
// for shared caches, which this is not.
func lifetime(h http.Header, now time.Time, most time.Duration) time.Duration {
	age, given := most, false
	for _, line := range h.Values("Cache-Control") {
		for directive := range strings.SplitSeq(line, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(directive), "=")
			switch strings.ToLower(name) {
			case "no-store", "no-cache":
				return 0
			case "max-age":
				given = true
				age = min(age, seconds(strings.Trim(value, `"`)))
			}
		}
	}
	if expires := h.Values("Expires"); !given && len(expires) > 0 {
		date, err := http.ParseTime(h.Get("Date"))
		if err != nil {
			date = now
		}
		end, err := http.ParseTime(expires[0])
		if err != nil {
			return 0
		}
		age = min(age, end.Sub(date))
	}
	if spent := h.Get("Age"); spent != "" {
		age -= seconds(spent)
	}
	return max(age, 0)
}

// seconds reads a delta-seconds value. What is none, or is out of all
// proportion, is 0 for a max-age; a large one is cut to a day.
func seconds(text string) time.Duration {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(min(n, 86_400)) * time.Second
}
