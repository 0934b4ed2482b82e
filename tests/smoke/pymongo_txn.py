"""Transactions and change streams with pymongo: python3 pymongo_txn.py URI of a replica set. Exit code 0 if all held."""
import sys

import pymongo
from pymongo import read_concern, write_concern


def check(claim, holds):
    if not holds:
        sys.exit("FAILED: " + claim)
    print("ok: " + claim)


client = pymongo.MongoClient(sys.argv[1], serverSelectionTimeoutMS=20000)
accounts = client["py_txn"]["accounts"]
accounts.insert_many([{"_id": "a", "n": 10}, {"_id": "b", "n": 0}])


def transfer(session):
    accounts.update_one({"_id": "a"}, {"$inc": {"n": -1}}, session=session)
    accounts.update_one({"_id": "b"}, {"$inc": {"n": 1}}, session=session)
    return sum(row["n"] for row in accounts.find(session=session))


def fail(session):
    transfer(session)
    raise ValueError("changed its mind")


with accounts.watch(full_document="updateLookup") as stream, client.start_session() as session:
    total = session.with_transaction(
        transfer,
        read_concern=read_concern.ReadConcern("snapshot"),
        write_concern=write_concern.WriteConcern("majority"))
    check("with_transaction returns what the callback returned", total == 10)
    events = [stream.next(), stream.next()]
    check("the stream has its events in order", [e["documentKey"]["_id"] for e in events] == ["a", "b"])
    check("they belong to one transaction",
          all(e["txnNumber"] == events[0]["txnNumber"] and e["clusterTime"] == events[0]["clusterTime"] for e in events))
    check("and have the documents", [e["fullDocument"]["n"] for e in events] == [9, 1])
    try:
        session.with_transaction(fail)
        check("an exception ends with_transaction", False)
    except ValueError:
        check("and nothing of it stays", accounts.find_one("b")["n"] == 1)
    check("the token resumes", stream.resume_token is not None)
