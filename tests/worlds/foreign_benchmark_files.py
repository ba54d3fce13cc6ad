"""Files of benchmark tools that cannot be imported, as these tools write them (SIMULATED figures)."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Foreign:
    """A file of another tool: its name, text, and the word by which a refusal names it."""

    file_name: str
    text: str
    naming: str


FOREIGN: dict[str, Foreign] = {
    "hyperfine CSV": Foreign(
        "bench.csv",
        "command,mean,stddev,median,user,system,min,max\nsleep 0.1,0.1012,0.0003,0.1011,0.0009,0.0012,0.1007,0.1019\n",
        "hyperfine",
    ),
    "hyperfine Markdown": Foreign(
        "bench.md",
        "| Command | Mean [ms] | Min [ms] | Max [ms] | Relative |\n|:---|---:|---:|---:|---:|\n"
        "| `sleep 0.1` | 101.2 ± 0.3 | 100.7 | 101.9 | 1.00 |\n",
        "hyperfine",
    ),
    "JMH text": Foreign(
        "jmh.txt",
        "# JMH version: 1.37\n# VM version: JDK 17.0.1\n\nBenchmark      (n)  Mode  Cnt  Score   Error  Units\n"
        "Sums.average   100  avgt    6  0.019 ± 0.001  us/op\n",
        "JMH",
    ),
    "JMH CSV": Foreign(
        "jmh.csv",
        '"Benchmark","Mode","Threads","Samples","Score","Score Error (99.9%)","Unit"\n'
        '"probe.Sums.average","avgt",1,6,0.019,0.001,"us/op"\n',
        "JMH",
    ),
    "criterion raw.csv": Foreign(
        "raw.csv",
        "group,function,value,throughput_num,throughput_type,sample_measured_value,unit,iteration_count\n"
        "sums,,,,,1271.0,ns,10\n",
        "criterion",
    ),
    "Google Benchmark CSV": Foreign(
        "gb.csv",
        "name,iterations,real_time,cpu_time,time_unit,bytes_per_second,items_per_second,label,error_occurred,"
        'error_message\n"BM_Sum/64",1000,23.6,16.1,ns,,,,,\n',
        "Google Benchmark",
    ),
    "Google Benchmark console": Foreign(
        "gb.txt",
        "2026-09-01T02:00:00+00:00\nRunning ./bench\nRun on (8 X 3000 MHz CPU s)\n"
        "-------------------------------------------------\nBenchmark           Time             CPU   Iterations\n"
        "-----------------------------------------\nBM_Sum/64        23.6 ns         16.1 ns      4212187\n",
        "Google Benchmark",
    ),
    "BenchmarkDotNet JSON": Foreign(
        "report-full.json",
        json.dumps(
            {
                "Title": "Sums-20260901", "HostEnvironmentInfo": {"BenchmarkDotNetCaption": "BenchmarkDotNet"},
                "Benchmarks": [{"FullName": "Sums.A", "Statistics": {"N": 15, "Median": 12.5}}],
            }
        ),
        "BenchmarkDotNet",
    ),
    "BenchmarkDotNet CSV": Foreign(
        "report.csv",
        "Method;Job;AnalyzeLaunchVariance;EvaluateOverhead;MaxAbsoluteError;Mean;Error;StdDev\n"
        "Sum;DefaultJob;False;Default;Default;12.5 ns;0.1 ns;0.1 ns\n",
        "BenchmarkDotNet",
    ),
    "k6 summary": Foreign(
        "k6.json",
        json.dumps({"root_group": {}, "metrics": {"http_req_duration": {"values": {"med": 120.5}, "type": "trend"}}}),
        "k6",
    ),
    "k6 stream": Foreign(
        "k6.jsonl",
        '{"type":"Metric","data":{"name":"http_reqs","type":"counter"},"metric":"http_reqs"}\n'
        '{"metric":"http_req_duration","type":"Point","data":{"time":"2026-09-01T02:00:00Z","value":12.5,"tags":{}}}\n',
        "k6",
    ),
    "locust": Foreign(
        "stats.csv",
        "Type,Name,Request Count,Failure Count,Median Response Time,Average Response Time\nGET,/,100,0,12,13.5\n",
        "locust",
    ),
    "perf stat": Foreign(
        "perf.txt",
        "\n Performance counter stats for 'sleep 1':\n\n              0.52 msec task-clock   #    0.001 CPUs utilized\n"
        "\n       1.001 seconds time elapsed\n",
        "perf stat",
    ),
    "perf stat JSON": Foreign(
        "perf.json",
        '{"counter-value" : "0.520000", "unit" : "msec", "event" : "task-clock", "event-runtime" : 520000, '
        '"pcnt-running" : 100.00}\n',
        "perf stat",
    ),
    "sysbench": Foreign(
        "sysbench.txt",
        "sysbench 1.0.20 (using system LuaJIT 2.1.0-beta3)\n\nRunning the test with following options:\n"
        "CPU speed:\n    events per second:  1234.56\n",
        "sysbench",
    ),
    "asv benchmarks.json": Foreign(
        "benchmarks.json",
        json.dumps(
            {
                "bench.time_sort": {
                    "code": "def time_sort(): pass", "name": "bench.time_sort", "param_names": [], "params": [],
                    "type": "time", "unit": "seconds", "version": "abc",
                },
                "version": 2,
            }
        ),
        "asv",
    ),
    "Catch2": Foreign(
        "catch.xml",
        '<?xml version="1.0" encoding="UTF-8"?>\n<Catch2TestRun name="tests" rng-seed="1" catch2-version="3.4.0">\n'
        ' <TestCase name="a"><BenchmarkResults name="sum" samples="100"><mean value="12.5"/></BenchmarkResults>'
        "</TestCase>\n</Catch2TestRun>\n",
        "Catch2",
    ),
    "nanobench JSON": Foreign(
        "nano.json",
        json.dumps(
            {
                "results": [
                    {
                        "title": "benchmark", "name": "sum", "unit": "op", "batch": 1, "complexityN": -1, "epochs": 11,
                        "median(elapsed)": 1.2e-8, "medianAbsolutePercentError(elapsed)": 0.01, "totalTime": 0.1,
                    }
                ]
            }
        ),
        "nanobench",
    ),
    "nanobench table": Foreign(
        "nano.txt",
        "|               ns/op |                op/s |    err% |     total | benchmark\n"
        "|--------------------:|--------------------:|--------:|----------:|:----------\n"
        "|               12.50 |       80,000,000.00 |    0.1% |      0.01 | `sum`\n",
        "nanobench",
    ),
    "hyperfine text": Foreign(
        "hf.txt",
        "Benchmark 1: sleep 0.1\n  Time (mean ± σ):     101.2 ms ±   0.3 ms    [User: 0.9 ms, System: 1.2 ms]\n",
        "hyperfine",
    ),
    "criterion text": Foreign(
        "crit.txt", "sum plain               time:   [1.2574 µs 1.2704 µs 1.2855 µs]\n", "criterion"
    ),
    "libtest": Foreign("bench.txt", "test tests::bench_sum ... bench:       1,234 ns/iter (+/- 56)\n", "Rust"),
    "benchstat": Foreign(
        "stat.txt",
        "goos: linux\npkg: example.com/a\n       │   go.txt    │\n       │   sec/op    │\nSum-2    272.9n ± ∞ ¹\n",
        "benchstat",
    ),
    "pytest-benchmark CSV": Foreign(
        "pb.csv", "name,min,max,mean,stddev,rounds,median,iqr,ops\ntest_x,1,2,1.5,.1,7,1.5,.1,1\n", "pytest-benchmark"
    ),
    "pyperf text": Foreign("pyperf.txt", ".....................\nsort: Mean +- std dev: 12.3 us +- 0.4 us\n", "pyperf"),
    "time": Foreign("time.txt", "\nreal\t0m1.002s\nuser\t0m0.001s\nsys\t0m0.001s\n", "time"),
    "guidellm": Foreign("g.json", json.dumps({"metadata": {"guidellm_version": "0.5"}, "benchmarks": []}), "guidellm"),
    "plain JSON": Foreign("x.json", '{"hello": [1, 2, 3]}\n', "cannot detect"),
    "plain text": Foreign("x.txt", "hello, world\n", "cannot detect"),
    "a picture": Foreign("x.png", "\x00\x01\x02\x00", "cannot detect"),
}  # fmt: skip


def write_foreign(name: str, folder: Path, draw: random.Random) -> Path:
    """Write a file of another tool, now and then under another name or with Windows' marks."""
    one = FOREIGN[name]
    path = folder / (one.file_name if draw.random() < 0.7 else "result.out")
    raw = one.text.encode()
    if draw.random() < 0.2:
        raw = b"\xef\xbb\xbf" + raw.replace(b"\n", b"\r\n")
    path.write_bytes(raw)
    return path
