// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/netip"
	"slices"
	"testing"
)

func discard() *log.Logger { return log.New(io.Discard, "", 0) }

// answers is a name service that gives the first list on the first question, the
// second on the second, and so on; the last one stays.
func answers(t *testing.T, lists ...any) Lookup {
	t.Helper()
	n := 0
	return func(context.Context, string) ([]netip.Addr, error) {
		list := lists[min(n, len(lists)-1)]
		n++
		switch list := list.(type) {
		case error:
			return nil, list
		case string:
			return []netip.Addr{netip.MustParseAddr(list)}, nil
		case []string:
			var out []netip.Addr
			for _, a := range list {
				out = append(out, netip.MustParseAddr(a))
			}
			return out, nil
		}
		return nil, nil
	}
}

func TestPublicAddresses(t *testing.T) {
	for addr, want := range map[string]bool{
		"93.184.216.34":        true,
		"192.0.1.1":            true,
		"100.63.255.255":       true,
		"100.128.0.0":          true,
		"172.32.0.1":           true,
		"2606:2800:220:1::1":   true,
		"2001:200::1":          true,
		"::ffff:93.184.216.34": true, // an IPv4 address in IPv6 spelling

		"0.0.0.0":                     false,
		"0.1.2.3":                     false,
		"10.0.0.1":                    false,
		"100.64.0.1":                  false,
		"100.127.255.255":             false,
		"127.0.0.1":                   false,
		"127.255.255.254":             false,
		"169.254.169.254":             false, // cloud metadata
		"172.16.0.1":                  false,
		"172.31.255.255":              false,
		"192.0.0.8":                   false,
		"192.0.2.1":                   false,
		"192.88.99.1":                 false,
		"192.168.1.1":                 false,
		"198.18.0.1":                  false,
		"198.51.100.1":                false,
		"203.0.113.1":                 false,
		"224.0.0.1":                   false,
		"239.255.255.255":             false,
		"240.0.0.1":                   false,
		"255.255.255.255":             false,
		"::":                          false,
		"::1":                         false,
		"::127.0.0.1":                 false, // deprecated IPv4-compatible
		"::ffff:127.0.0.1":            false,
		"::ffff:10.0.0.1":             false,
		"::ffff:169.254.169.254":      false,
		"::ffff:0:127.0.0.1":          false, // SIIT
		"64:ff9b::93.184.216.34":      false, // NAT64
		"64:ff9b::127.0.0.1":          false,
		"64:ff9b:1::1":                false, // NAT64, local use
		"100::1":                      false, // discard
		"2001::1":                     false, // Teredo
		"2001:0:4136:e378::1":         false,
		"2001:2::1":                   false, // benchmarking
		"2001:20::1":                  false, // ORCHID
		"2001:db8::1":                 false,
		"2002:7f00:1::1":              false, // 6to4 of 127.0.0.1
		"2002:5db8:d822::1":           false,
		"3fff::1":                     false,
		"5f00::1":                     false, // SRv6
		"fc00::1":                     false,
		"fd00:ec2::254":               false, // cloud metadata
		"fe80::1":                     false,
		"fe80::1%eth0":                false,
		"fec0::1":                     false, // site-local
		"ff02::1":                     false,
		"2606:2800:220:1::1%eth0":     false,
		"ff0e::1":                     false,
		"2001:1ff:ffff:ffff::1":       false,
		"::ffff:192.168.0.1":          false,
		"::ffff:100.64.0.1":           false,
		"2002:a9fe:a9fe::":            false, // 6to4 of 169.254.169.254
		"64:ff9b::169.254.169.254":    false,
		"64:ff9b:0:0:0:1:127.0.0.1":   false,
		"2001:0:a9fe:a9fe:0:0:0:ffff": false,
	} {
		a := netip.MustParseAddr(addr)
		if got := Public(a); got != want {
			t.Errorf("Public(%s) = %v, want %v", addr, got, want)
		}
		if want {
			continue
		}
		// And a name that leads there is not dialled.
		d := newDialer(Config{Lookup: answers(t, addr)})
		d.connect = func(context.Context, string, string) (net.Conn, error) {
			t.Errorf("%s was dialled", addr)
			return nil, errors.New("unreachable")
		}
		_, err := d.dial(t.Context(), "tcp", "evil.example:443")
		var refused *AddressError
		if !errors.Is(err, ErrForbiddenAddress) || !errors.As(err, &refused) || refused.Addr != a || refused.Host != "evil.example" {
			t.Errorf("dialling %s: %v, want an AddressError for it", addr, err)
		}
	}
	if Public(netip.Addr{}) {
		t.Error("the zero address is public")
	}
}

// A name service that answers a public address when asked first and an inner one
// afterwards gains nothing: one answer is used for both the check and the dial.
func TestRebindingBetweenCheckAndDial(t *testing.T) {
	var asked int
	rebind := answers(t, "93.184.216.34", "127.0.0.1")
	d := newDialer(Config{Lookup: func(ctx context.Context, host string) ([]netip.Addr, error) {
		asked++
		return rebind(ctx, host)
	}})
	var dialled []string
	d.connect = func(_ context.Context, _, address string) (net.Conn, error) {
		dialled = append(dialled, address)
		return nil, errors.New("unreachable")
	}
	if _, err := d.dial(t.Context(), "tcp", "rebind.example:443"); err == nil || errors.Is(err, ErrForbiddenAddress) {
		t.Errorf("first: %v", err)
	}
	if asked != 1 || !slices.Equal(dialled, []string{"93.184.216.34:443"}) {
		t.Errorf("asked %d times, dialled %v", asked, dialled)
	}
	// The next connection asks again, and is judged by the new answer.
	if _, err := d.dial(t.Context(), "tcp", "rebind.example:443"); !errors.Is(err, ErrForbiddenAddress) || len(dialled) != 1 {
		t.Errorf("second: %v, dialled %v", err, dialled)
	}
}

// The socket has the last word, whatever came before it.
func TestSocketAddressIsChecked(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	d := newDialer(Config{})
	conn, err := d.connect(t.Context(), "tcp", ln.Addr().String())
	if err == nil {
		_ = conn.Close()
	}
	if !errors.Is(err, ErrForbiddenAddress) {
		t.Errorf("connecting to loopback: %v, want ErrForbiddenAddress", err)
	}
	if err := d.control("tcp", "not an address", nil); !errors.Is(err, ErrForbiddenAddress) {
		t.Errorf("an address that is none: %v", err)
	}
}

func TestMixedAnswersAreRefused(t *testing.T) {
	d := newDialer(Config{Lookup: answers(t, []string{"93.184.216.34", "192.168.0.1"})})
	d.connect = func(context.Context, string, string) (net.Conn, error) {
		t.Error("dialled")
		return nil, errors.New("unreachable")
	}
	if _, err := d.dial(t.Context(), "tcp", "mixed.example:443"); !errors.Is(err, ErrForbiddenAddress) {
		t.Errorf("got %v, want ErrForbiddenAddress", err)
	}
}

func TestDialTriesSeveralButNotAll(t *testing.T) {
	many := make([]string, 100)
	for i := range many {
		many[i] = netip.AddrFrom4([4]byte{93, 184, 216, byte(i)}).String()
	}
	d := newDialer(Config{Lookup: answers(t, many)})
	n := 0
	d.connect = func(context.Context, string, string) (net.Conn, error) {
		n++
		return nil, errors.New("unreachable")
	}
	if _, err := d.dial(t.Context(), "tcp", "many.example:443"); err == nil || n != maxDialled {
		t.Errorf("%v after %d attempts, want an error after %d", err, n, maxDialled)
	}
}

func TestDialFailures(t *testing.T) {
	broken := errors.New("SERVFAIL")
	for name, c := range map[string]struct {
		cfg  Config
		addr string
		want error
	}{
		"look-up fails":       {Config{Lookup: answers(t, broken)}, "a.example:443", broken},
		"configured denial":   {Config{Lookup: answers(t, "93.184.216.34"), DenyAddresses: []netip.Prefix{netip.MustParsePrefix("93.184.0.0/16")}}, "a.example:443", ErrForbiddenAddress},
		"no port":             {Config{}, "a.example", ErrForbiddenURL},
		"bad port":            {Config{}, "a.example:0", ErrForbiddenURL},
		"mapping of a port":   {Config{Hosts: map[string]string{"a.example:443": "127.0.0.1:1"}, Lookup: answers(t, "127.0.0.1")}, "a.example:444", ErrForbiddenAddress},
		"mapping of a parent": {Config{Hosts: map[string]string{"example:443": "127.0.0.1:1"}, Lookup: answers(t, "127.0.0.1")}, "a.example:443", ErrForbiddenAddress},
	} {
		if _, err := newDialer(c.cfg).dial(t.Context(), "tcp", c.addr); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if _, err := newDialer(Config{Lookup: answers(t, nil)}).dial(t.Context(), "tcp", "a.example:443"); err == nil {
		t.Error("an empty answer was dialled")
	}
}

func TestDialReachesWhatIsPermitted(t *testing.T) {
	d := newDialer(Config{Lookup: answers(t, []string{"93.184.216.34", "93.184.216.35"})})
	here, there := net.Pipe()
	t.Cleanup(func() { _, _ = here.Close(), there.Close() })
	var dialled []string
	d.connect = func(_ context.Context, _, address string) (net.Conn, error) {
		dialled = append(dialled, address)
		if len(dialled) == 1 {
			return nil, errors.New("unreachable")
		}
		return here, d.control("tcp", address, nil)
	}
	conn, err := d.dial(t.Context(), "tcp", "A.example:443")
	if err != nil || conn != here || !slices.Equal(dialled, []string{"93.184.216.34:443", "93.184.216.35:443"}) {
		t.Errorf("%v, %v; dialled %v", conn, err, dialled)
	}

	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	d.connect = func(context.Context, string, string) (net.Conn, error) {
		n++
		cancel()
		return nil, errors.New("cancelled")
	}
	if _, err := d.dial(ctx, "tcp", "a.example:443"); err == nil || n != 1 {
		t.Errorf("%v after %d attempts of a caller who left", err, n)
	}
}
