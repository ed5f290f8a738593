// SPDX-License-Identifier: Apache-2.0

// Command bench runs the benchmarks that have a floor, all in one go, and prints our cost beside it: the raw primitives, or
// the bare library. Ratios are what counts; absolute times are the machine's. It also writes bench.json.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// row is one figure: a benchmark, and its floor, which is another benchmark of the package or the benchmark's own
// floor_ns/op. A row without any floor is printed with what else the benchmark reports.
type row struct {
	name, pkg, bench, floor string
	goal                    float64 // highest ratio; 0: printed only
}

var rows = []row{
	{"verify a signed request (512 B)", "./did/httpsig", "BenchmarkVerify/live=0/body=512", "", 1.25},
	{"verify a signed request (64 KiB)", "./did/httpsig", "BenchmarkVerify/live=0/body=65536", "", 1.25},
	{"verify, 100 000 live nonces (512 B)", "./did/httpsig", "BenchmarkVerify/live=100000/body=512", "", 1.25},
	{"verify k1_ (512 B)", "./did/httpsig", "BenchmarkVerifyK1", "", 1.25},
	{"sign a request (512 B)", "./did/httpsig", "BenchmarkSign/body=512", "", 1.3},
	{"sign a request (64 KiB)", "./did/httpsig", "BenchmarkSign/body=65536", "", 1.3},
	{"document proof, e1_", "./did", "BenchmarkDocument/verify", "BenchmarkDocument/floor", 1.4},
	{"document proof, k1_", "./did", "BenchmarkDocumentK1/verify", "BenchmarkDocumentK1/floor", 1.4},
	{"envelope: parse, verify, open", "./node/envelope", "BenchmarkReceive", "BenchmarkReceiveFloor", 1.5},
	{"envelope received to durable, beside 1.5 × cryptography + commit", "./node/negotiation", "BenchmarkReceive", "", 1},
	{"rounds until agreement, in a negotiation", "./node/negotiation", "BenchmarkRounds", "", 0},
	{"resolve a cached DID", "./did/resolver", "BenchmarkResolveCached", "", 0},
	{"1 000 look-ups of one DID, merged", "./did/resolver", "BenchmarkResolveMerged", "", 0},
	{"100 000 cached DIDs", "./did/resolver", "BenchmarkCacheMemory", "", 0},
	{"evaluate a 40-column contract, beside 2 µs, without allocation", "./node/contract", "BenchmarkEvaluate", "", 1},
	{"durable write of the store", "./node/store/sqlite", "BenchmarkUpdate", "BenchmarkFsync", 0},
	{"signed A2A call beside bare a2a-go", "./node/gateway/a2a", "BenchmarkA2ASigned", "BenchmarkA2ABareTask", 0},
	{"signed and sealed A2A message, beside bare + 1.25 × cryptography", "./node/gateway/a2a", "BenchmarkA2ASealed/x25519", "", 1},
	{"the same with X-Wing", "./node/gateway/a2a", "BenchmarkA2ASealed/xwing", "", 1},
	{"guard of a call: verify, decide, reserve, receipt", "./node/dataplane", "BenchmarkGuard", "", 1.5},
	{"64 callers at once, guarded MCP calls beside bare go-sdk", "./node/dataplane", "BenchmarkCallers", "", 1.25},
	{"10 million rows of Parquet beside bare DuckDB", "./cmd/treaty-dataplane/internal/duck", "BenchmarkParquet", "", 1.1},
	{"one caller, the same guarded calls", "./node/dataplane", "BenchmarkMCP", "", 1.25},
	{"largest answer of rows, over 0.5 and 5 million: memory at its peak", "./cmd/treaty-dataplane/internal/duck", "BenchmarkLargeResult/rows", "", 0},
	{"largest answer of groups, the same", "./cmd/treaty-dataplane/internal/duck", "BenchmarkLargeResult/groups", "", 0},
	{"largest answer in bytes, over TLS: heap at its peak", "./node/dataplane", "BenchmarkLargestAnswer", "", 0},
	{"from the commit of a revocation to the next call's refusal, signed and recorded", "./node/dataplane", "BenchmarkRevocationToRefusal", "", 0},
}

// limits are times in ns that stand for the floor of benchmarks which must not allocate.
var limits = map[string]float64{"BenchmarkEvaluate": 2000}

// result is one line of bench.json: cost over floor, lower is better.
type result struct {
	Name      string  `json:"name"`
	NsOp      float64 `json:"ns_op"`
	FloorNsOp float64 `json:"floor_ns_op"`
	Ratio     float64 `json:"ratio"`
	Goal      float64 `json:"goal"`
}

func main() {
	count := flag.Int("count", 5, "runs of each benchmark; the best is taken")
	benchtime := flag.String("benchtime", "0.3s", "time of one run")
	out := flag.String("out", "bench.json", "file to write")
	flag.Parse()
	if err := run(*count, *benchtime, *out); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(count int, benchtime, out string) error {
	measured := map[string]map[string]sample{}
	var results []result
	tw := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, "figure\tours\tfloor\tratio\tgoal\t")
	for _, r := range rows {
		if measured[r.pkg] == nil {
			m, err := measure(r.pkg, names(r.pkg, false), count, benchtime)
			if err != nil {
				return err
			}
			measured[r.pkg] = m
		}
		if _, done := measured[r.pkg][r.bench]; once[top(r.bench)] && !done {
			m, err := measure(r.pkg, names(r.pkg, true), 1, "1x")
			if err != nil {
				return err
			}
			maps.Copy(measured[r.pkg], m)
		}
		s, ok := measured[r.pkg][r.bench]
		floor := s.floor
		if r.floor != "" {
			floor = measured[r.pkg][r.floor].ns
		}
		if limit, ok := limits[r.bench]; ok {
			floor = limit
			if s.allocs > 0 {
				return fmt.Errorf("%s: %s allocates", r.pkg, r.bench)
			}
		}
		if !ok || floor == 0 && r.goal > 0 {
			return fmt.Errorf("%s: %s has no result", r.pkg, r.bench)
		}
		if floor == 0 {
			fmt.Fprintf(tw, "%s\t%s\t-\t-\t-\t%s\n", r.name, micro(s.ns), s.rest)
			continue
		}
		res := result{r.name, s.ns, floor, s.ns / floor, r.goal}
		results = append(results, res)
		goal := "-"
		if r.goal > 0 {
			goal = fmt.Sprintf("%.2f", r.goal)
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%.2f\t%s\t%s\n", res.Name, micro(res.NsOp), micro(res.FloorNsOp), res.Ratio, goal, s.rest)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	data, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(out, append(data, '\n'), 0o644)
}

func micro(ns float64) string { return strconv.FormatFloat(ns/1000, 'f', 1, 64) + " µs" }

// sample is a benchmark's best run, with the floor measured within the same run if there is one.
type sample struct {
	ns, floor float64
	allocs    float64
	rest      string // what the benchmark reports beside, such as bytes for each entry
}

// once are benchmarks that take long and whose result does not scatter.
var once = map[string]bool{"BenchmarkCacheMemory": true, "BenchmarkParquet": true, "BenchmarkLargeResult": true, "BenchmarkLargestAnswer": true}

// top is a benchmark without its parts.
func top(bench string) string {
	name, _, _ := strings.Cut(bench, "/")
	return name
}

// names are the benchmarks of a package that rows name, those to be run once or the others.
func names(pkg string, single bool) []string {
	var out []string
	for _, r := range rows {
		for _, n := range []string{r.bench, r.floor} {
			if t := top(n); r.pkg == pkg && n != "" && once[t] == single && !slices.Contains(out, t) {
				out = append(out, t)
			}
		}
	}
	return out
}

// measure runs benchmarks of a package and keeps the best run of each.
func measure(pkg string, names []string, count int, benchtime string) (map[string]sample, error) {
	fmt.Fprintln(os.Stderr, "measuring", pkg)
	cmd := exec.Command("go", "test", "-run", "^$", "-bench", "^("+strings.Join(names, "|")+")$", "-benchtime", benchtime, "-count", strconv.Itoa(count), pkg) //nolint:gosec // our own table
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	found := map[string]sample{}
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		name, s, ok := parse(lines.Text())
		if !ok {
			continue
		}
		// Ours and floor come from one run: the pair with the lowest ratio would flatter, the fastest of ours does not.
		if best, seen := found[name]; !seen || s.ns < best.ns {
			found[name] = s
		}
	}
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("%s: %w", pkg, err)
	}
	return found, nil
}

// parse reads a line such as "BenchmarkX/y-2  1132  104346 ns/op  91031 floor_ns/op".
func parse(line string) (name string, s sample, ok bool) {
	f := strings.Fields(line)
	if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") {
		return "", s, false
	}
	name = f[0]
	if i := strings.LastIndexByte(name, '-'); i > 0 {
		name = name[:i]
	}
	for i := 2; i+1 < len(f); i += 2 {
		v, err := strconv.ParseFloat(f[i], 64)
		if err != nil {
			return "", s, false
		}
		switch f[i+1] {
		case "ns/op":
			s.ns = v
		case "floor_ns/op":
			s.floor = v
		case "allocs/op":
			s.allocs = v
		case "ratio", "B/op":
		default:
			s.rest += " " + f[i] + " " + f[i+1]
		}
	}
	return name, s, s.ns > 0
}
