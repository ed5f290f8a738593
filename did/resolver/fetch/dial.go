// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	maxDialled     = 4               // addresses tried for one name
	perDialTimeout = 3 * time.Second // for each of them
)

// AddressError says which address a name led to. It is an ErrForbiddenAddress.
type AddressError struct {
	Host string // the name, empty where only the socket's address is known
	Addr netip.Addr
}

func (e *AddressError) Error() string {
	return fmt.Sprintf("%v: %q leads to %v", ErrForbiddenAddress, e.Host, e.Addr)
}

// Is makes errors.Is(err, ErrForbiddenAddress) true.
func (e *AddressError) Is(target error) bool { return target == ErrForbiddenAddress }

// global is where public IPv6 addresses come from; the rest of the space is
// refused without a list.
var global = netip.MustParsePrefix("2000::/3")

// notPublic are the blocks that the IANA special-purpose registries (RFC 6890)
// or the address family's architecture keep from being a stranger's public host.
var notPublic = prefixes(
	"0.0.0.0/8",       // this network, unspecified
	"10.0.0.0/8",      // private
	"100.64.0.0/10",   // shared address space, RFC 6598
	"127.0.0.0/8",     // loopback
	"169.254.0.0/16",  // link-local, metadata services
	"172.16.0.0/12",   // private
	"192.0.0.0/24",    // protocol assignments
	"192.0.2.0/24",    // documentation
	"192.88.99.0/24",  // 6to4 relays, RFC 7526
	"192.168.0.0/16",  // private
	"198.18.0.0/15",   // benchmarking
	"198.51.100.0/24", // documentation
	"203.0.113.0/24",  // documentation
	"224.0.0.0/4",     // multicast
	"240.0.0.0/4",     // reserved, broadcast
	"2001::/23",       // protocol assignments: Teredo, ORCHID, benchmarking
	"2001:db8::/32",   // documentation
	"2002::/16",       // 6to4: embeds any IPv4 address
	"3fff::/20",       // documentation
)

func prefixes(texts ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(texts))
	for i, t := range texts {
		out[i] = netip.MustParsePrefix(t)
	}
	return out
}

// Public reports whether a is an address that a stranger's public server can
// have. An IPv4-mapped IPv6 address is judged as the IPv4 address it stands for;
// addresses that translate to IPv4 in other ways (NAT64, 6to4, Teredo) and
// addresses with a zone are not public.
func Public(a netip.Addr) bool {
	if !a.IsValid() || a.Zone() != "" {
		return false
	}
	a = a.Unmap()
	if a.Is6() && !global.Contains(a) {
		return false // ::, ::1, 64:ff9b::/96, fc00::/7, fe80::/10, ff00::/8 and the rest
	}
	return !slices.ContainsFunc(notPublic, func(p netip.Prefix) bool { return p.Contains(a) })
}

type dialer struct {
	hosts   map[string]string
	deny    []netip.Prefix
	lookup  Lookup
	connect func(ctx context.Context, network, address string) (net.Conn, error)
}

func newDialer(c Config) *dialer {
	d := &dialer{hosts: maps.Clone(c.Hosts), deny: slices.Clone(c.DenyAddresses), lookup: c.Lookup}
	if d.lookup == nil {
		d.lookup = systemLookup
	}
	d.connect = (&net.Dialer{Timeout: perDialTimeout, Control: d.control}).DialContext
	return d
}

// systemLookup asks for the absolute name: the resolver's search list is for the
// operator's own short names, and must not complete a peer's.
func systemLookup(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host+".")
}

func (d *dialer) permitted(a netip.Addr) bool {
	a = a.Unmap()
	return Public(a) && !slices.ContainsFunc(d.deny, func(p netip.Prefix) bool { return p.Contains(a) })
}

// dial connects to hostport. One answer of the name service is looked at as a
// whole, and the connection goes to an address out of that answer.
func (d *dialer) dial(ctx context.Context, network, hostport string) (net.Conn, error) {
	hostport = strings.ToLower(hostport)
	if mapped, ok := d.hosts[hostport]; ok {
		return (&net.Dialer{Timeout: perDialTimeout}).DialContext(ctx, network, mapped)
	}
	host, portText, err := net.SplitHostPort(hostport)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrForbiddenURL, err)
	}
	port, err := parsePort(portText)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrForbiddenURL, err)
	}
	addrs, err := d.lookup(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("looking up %q: %w", host, err)
	}
	if len(addrs) == 0 {
		return nil, fmt.Errorf("looking up %q: no address", host)
	}
	// One bad address condemns the answer: an honest name has no reason to mix
	// public and inner addresses, and a name that does is aimed at somebody.
	for _, a := range addrs {
		if !d.permitted(a) {
			return nil, &AddressError{Host: host, Addr: a}
		}
	}
	var errs []error
	for _, a := range addrs[:min(len(addrs), maxDialled)] {
		conn, err := d.connect(ctx, network, netip.AddrPortFrom(a.Unmap(), uint16(port)).String())
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}

// control runs on the socket, after every resolution and before the connection:
// the last word about where a connection goes.
func (d *dialer) control(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrForbiddenAddress, err)
	}
	if !d.permitted(ap.Addr()) {
		return &AddressError{Addr: ap.Addr()}
	}
	return nil
}
